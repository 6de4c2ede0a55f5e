"""Trains with whole batches and in parts, in one process: `python -m tests.equivalence.train_accumulation FOLDER CASE`.

In its own process, because logical devices must be set up before TensorFlow's first op.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.equivalence.train_layers import begin
from tests.equivalence.train_recipes import WITH_ALL, with_estimator, with_keras

# Of a batch of 16, or of 8 on each of two devices: neither divides by 3.
PARTS: dict[str, dict[str, int]] = {
    "sgd": {"gradient_accumulation": 3},
    "more sgd": {"gradient_accumulation": 3},
    "adam": {"gradient_accumulation": 4},
    "norm": {"gradient_accumulation": 2},
    "parallel": {"parallel_parts": 3},
    "more parallel": {"parallel_parts": 3},
    "both": {"gradient_accumulation": 3, "parallel_parts": 2},
}
# Entries of `params`, and options of the network.
_SGD: tuple[dict[str, Any], dict[str, str]] = (WITH_ALL, {"dropout": "stateless"})
CASES = {
    "sgd": _SGD,
    "more sgd": _SGD,
    "adam": ({"optimizer": {"name": "adam", "learning_rate": 0.003}}, {}),
    "norm": ({"optimizer": {"name": "sgd", "learning_rate": 0.05}}, {"norm": "synchronized"}),
    "parallel": _SGD,
    "more parallel": _SGD,
    "both": _SGD,
}
# Path and strategy of the trainings in parts; an Estimator on one device trains the whole batches.
TRAINED = {
    "sgd": [("estimator", "mirrored"), ("keras", "one_device")],
    "more sgd": [
        ("keras", "mirrored"),
        ("keras", "central_storage"),
        ("estimator", "central_storage"),
        ("estimator", "one_device"),
    ],
    "adam": [("estimator", "one_device"), ("keras", "mirrored")],
    "norm": [("estimator", "one_device"), ("keras", "one_device"), ("estimator", "mirrored"), ("keras", "mirrored")],
    "parallel": [("estimator", "one_device"), ("keras", "one_device")],
    "more parallel": [
        ("keras", "mirrored"),
        ("keras", "central_storage"),
        ("estimator", "central_storage"),
        ("estimator", "mirrored"),
    ],
    "both": [("estimator", "one_device"), ("keras", "mirrored")],
}


def main(folder: str, case: str) -> None:
    """Trains a case; saves the weights to `CASE.PATH.STRATEGY.npz`, and those of whole batches to `CASE.npz`."""
    built = begin()
    recipe, network = CASES[case]
    np.savez(Path(folder) / f"{case}.npz", *with_estimator(recipe, None, f"{folder}/{case}", **network))
    in_parts = {**recipe, **PARTS[case]}
    for path, strategy in TRAINED[case]:
        name = f"{case}.{path}.{strategy}"
        if path == "estimator":
            weights = with_estimator(in_parts, built[strategy], f"{folder}/{name}", **network)
        else:
            weights = with_keras(in_parts, built[strategy], **network)
        np.savez(Path(folder) / f"{name}.npz", *weights)


if __name__ == "__main__":
    main(*sys.argv[1:])
