"""The conversion of an exported graph to a Keras model."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfx_estimator.model_fn.bridge.graph import references
from tfx_estimator.model_fn.bridge.graph.exported import read
from tfx_estimator.model_fn.bridge.graph.proof import Kept, prove
from tfx_estimator.model_fn.bridge.graph.writing import source_of
from tfx_estimator.model_fn.bridge.proof import require
from tfx_estimator.model_fn.bridge.tensors import GLOBAL_STEP, STEP, WEIGHT
from tfx_estimator.model_fn.bridge.written import MAPPING, NETWORK, drafted, load
from tfx_estimator.pipeline.base.files import write_json

GRAPH = "graph"


def keep(folder: str, files: Sequence[str], output: str, answer: str = "") -> Kept:
    """Writes the graph, the source of a layer over it, and the proof that it answers the same and trains."""
    exported = read(folder, answer)
    with drafted(output) as draft:
        shutil.copytree(folder, os.path.join(draft, GRAPH))
        references.rewrite(os.path.join(draft, GRAPH))
        with open(os.path.join(draft, f"{NETWORK}.py"), "w", encoding="utf-8") as file:
            file.write(source_of(exported))
        module = load(draft)
        model = module.network()
        write_json(os.path.join(draft, MAPPING), {"saved_model": folder, "tensors": _placed(model)})
        with tempfile.TemporaryDirectory(prefix="tfx-estimator-") as scratch:
            proof = prove(exported, module, model, files, scratch)
        require(proof, draft, proof.todo())
    return proof


def _placed(model: tf.keras.Model) -> list[dict[str, Any]]:
    """Returns the mapping.json entry of each variable of the graph, with its index among the layer's weights."""
    trained = {each.name.partition(":")[0] for each in model.trainable_weights}
    return [
        {
            "tensor": (name := each.name.partition(":")[0]),
            "kind": STEP if name == GLOBAL_STEP else WEIGHT,
            "shape": each.shape.as_list(),
            "trained": name in trained,
            "place": f"weights[{index}]",
            "rule": "variable of the graph",
        }
        for index, each in enumerate(model.weights)
    ]
