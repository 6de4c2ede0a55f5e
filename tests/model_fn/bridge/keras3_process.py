"""One process with Keras 3 for all tests: converts, and resumes training by the written source, without this project.

Reads commands, one per line: a JSON list of a function's name and its arguments; prints a line after each.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf


def convert(program: str, *files: str) -> None:
    """Runs a program as `python -c` would in a new process."""
    keras.backend.clear_session()
    sys.argv = ["-c", *files]
    exec(program, {"sys": sys})


def train(folder: str, batches: str, by: str) -> None:
    """Resumes training: by a `loop`, in `float64`, by `fit`, or with IndexedSlices (`rows`) for Keras's optimizer."""
    keras.backend.clear_session()
    spec = importlib.util.spec_from_file_location("training", f"{folder}/training.py")
    training: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(training)
    model, optimizer = training.load()
    paths = [each.path for each in (*model.weights, *optimizer.variables)]
    stored = np.load(batches)
    images, labels = stored["images"], stored["labels"]
    if by == "float64":
        model, optimizer = _in_float64(model, optimizer)
    if by == "fit":
        model.compile(optimizer, loss=training.loss_of, metrics=["accuracy"])
        model.fit(tf.data.Dataset.from_tensor_slices((images, labels)), verbose=0)
    else:
        if by == "rows":
            type(optimizer).apply = type(optimizer).__mro__[1].apply
        for batch in zip(images, labels):
            training.train_step(model, optimizer, *batch)
    values = dict(zip(paths, map(np.asarray, (*model.weights, *optimizer.variables))))
    np.savez(Path(folder) / f"{by}.npz", **values)


def _in_float64(model: Any, optimizer: Any) -> tuple[Any, Any]:
    """Returns float64 copies with the current values."""

    def copied(layer: Any) -> Any:
        return type(layer).from_config({**layer.get_config(), "dtype": "float64"})

    exact = keras.models.clone_model(model, clone_function=copied)
    exact.set_weights(model.get_weights())
    other = type(optimizer).from_config(optimizer.get_config())
    other.build(exact.trainable_variables)
    for variable, value in zip(other.variables, optimizer.variables):
        variable.assign(tf.cast(value.value, variable.dtype))
    return exact, other


if __name__ == "__main__":
    for line in sys.stdin:
        name, *given = json.loads(line)
        {"convert": convert, "train": train}[name](*given)
        print("done", file=sys.stderr, flush=True)
