"""Single-process trainings of this package, each in a forked copy that has imported what they need.

See tests/faults/forks.py. No op runs before the fork.
"""

from __future__ import annotations

import importlib
import os

os.environ |= {"TF_NUM_INTRAOP_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}

from tests.equivalence import train_accumulation, train_layers, train_parallel, train_recipes  # noqa: F401
from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator


def run(module: str, folder: str, *arguments: str) -> None:
    """Trains, and saves to the folder."""
    bring_back_estimator()
    importlib.import_module(f"tests.equivalence.{module}").main(folder, *arguments)
