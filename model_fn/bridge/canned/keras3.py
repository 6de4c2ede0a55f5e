"""Compares a written network of Keras 3 in a separate process, since an Estimator needs Keras 2 in its own."""

from __future__ import annotations

import itertools
import os
import pickle
import tempfile
from collections.abc import Iterable
from typing import Any

import numpy as np

from tfx_estimator.model_fn.bridge import fresh
from tfx_estimator.model_fn.bridge.canned.session import Batch
from tfx_estimator.model_fn.bridge.canned.trial import Trial
from tfx_estimator.model_fn.bridge.steps import Moved

_PROGRAM = "from tfx_estimator.model_fn.bridge.canned import keras3_process; keras3_process.main(*sys.argv[1:])"
_FILE = "trial.pickle"


def compare(trial: Trial, answers: Iterable[tuple[Batch, np.ndarray]], moved: Iterable[Moved]) -> dict[str, Any]:
    """Runs `trial.compare` in Keras 3."""
    with tempfile.TemporaryDirectory(prefix="tfx-estimator-") as scratch:
        with open(os.path.join(scratch, _FILE), "wb") as file:
            # One at a time, as the process reads them.
            for each in itertools.chain([trial], answers, [None], moved, [None]):
                pickle.dump(each, file, protocol=pickle.HIGHEST_PROTOCOL)
        return fresh.start(scratch, fresh.python(_PROGRAM), (_FILE,))
