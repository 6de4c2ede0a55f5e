"""Writes network.py: a Keras model that goes on with a kept training."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import os
import pprint
import re
from pathlib import Path
from typing import Any

from tfx_estimator.model_fn.bridge.kept import parts

NETWORK = "network"

_HEADER = '''\
"""An Estimator's training, kept as a graph in `graph/`, which Keras goes on with.

    import network

    model = network.Training()
    model.fit(batches)  # of (features, labels), as the input_fn made them
    model.evaluate(batches)  # the Estimator's own metrics
    model.predict(batches)
    model.export_saved_model("served")  # as the Estimator's method
    model.save("training.keras")  # tf.keras.models.load_model reads it, after `import network`

Optimizer, learning rate and loss are those of the graph; `model.optimizer.learning_rate` is a factor of the rate.
It needs only TensorFlow, with Keras 3 or Keras 2.{left_out}
"""

import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

GRAPH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "graph")
# Keras knows the class by it, and no other training's.
NAME = {name}
# Variables of the training with the values of others, such as averages, in evaluation and serving.
PLACES = {places}
# Why only one replica can train; empty if several can. Whether their gradients are summed: of a loss that is a sum.
UNCUT, SUMMED = {uncut}, {summed}
# Whether the optimizer obeys a factor of its learning rate, and the variable with it.
SCALABLE, FACTOR = {scalable}, {factor}
# Variables that each replica changes by its own part of a batch, such as a normalisation's averages: they get the mean.
PER_REPLICA = {per_replica}
'''


@dataclasses.dataclass(frozen=True)
class Source:
    """The constants of a network.py, as it explains them, and what it leaves out."""

    places: dict[str, dict[str, str]]
    uncut: str
    summed: bool
    scalable: bool
    per_replica: list[str]
    left_out: list[str]

    def write(self, folder: str) -> None:
        """Writes the file."""
        header = _HEADER.format(
            left_out=f" Left out: {', '.join(self.left_out)}." if self.left_out else "",
            name=json.dumps(_name(folder)),
            places=_literal(self.places),
            uncut=json.dumps(self.uncut),
            summed=self.summed,
            scalable=self.scalable,
            factor=json.dumps(parts.FACTOR),
            per_replica=_literal(self.per_replica),
        )
        with open(os.path.join(folder, f"{NETWORK}.py"), "w", encoding="utf-8") as file:
            file.write(header + "\n\n" + inspect.getsource(parts).partition("\n\n\n")[2])


def _name(folder: str) -> str:
    """Returns a name that is the folder's own; the checksums of the weights are in the index."""
    files = (each for each in sorted(Path(folder, "graph").rglob("*")) if each.is_file() and ".data-" not in each.name)
    return "network_" + hashlib.sha256(b"".join(each.read_bytes() for each in files)).hexdigest()[:12]


def _literal(value: Any) -> str:
    return re.sub("'", '"', pprint.pformat(value, width=118)) if value else repr(value)
