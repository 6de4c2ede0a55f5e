"""The conversion of an exported graph to a Keras model."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import tempfile
import textwrap
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfx_estimator.model_fn.bridge.graph import parts, references
from tfx_estimator.model_fn.bridge.graph.exported import Exported, read
from tfx_estimator.model_fn.bridge.graph.proof import LIMITS, Kept, prove
from tfx_estimator.model_fn.bridge.proof import require
from tfx_estimator.model_fn.bridge.tensors import GLOBAL_STEP, STEP, WEIGHT
from tfx_estimator.model_fn.bridge.written import MAPPING, NETWORK, drafted, load
from tfx_estimator.pipeline.base.files import write_json

GRAPH = "graph"
_WIDTH = 119
_HEADER = '''\
"""An Estimator's export as a model that Keras trains further: a layer over the SavedModel in `graph/`.

{limits}

    import network

    model = network.network()
    model.compile("adam", loss)  # the Estimator's loss, of labels and {output}
    model.fit(batches)  # of (inputs, labels); inputs are a dict of {inputs}
    model.save_weights("trained.weights.h5")  # which another network.network() may load
    network.export(model, "trained")  # a SavedModel, to serve in place of the old one

It needs only TensorFlow, with Keras 2: from TensorFlow 2.16 on, tf_keras and TF_USE_LEGACY_KERAS=1 in the environment.
"""

import os

import tensorflow as tf

GRAPH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "graph")
# The graph's signature that is called, and its output that is trained.
SIGNATURE, OUTPUT = {signature}, {answer}
# Methods of signatures, where they are not Predict.
METHODS = {methods}
'''


def keep(folder: str, files: Sequence[str], output: str, answer: str = "") -> Kept:
    """Writes the graph, the source of a layer over it, and the proof that it answers the same and trains."""
    exported = read(folder, answer)
    with drafted(output) as draft:
        shutil.copytree(folder, os.path.join(draft, GRAPH))
        references.rewrite(os.path.join(draft, GRAPH))
        with open(os.path.join(draft, f"{NETWORK}.py"), "w", encoding="utf-8") as file:
            file.write(_source(exported))
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


def _source(exported: Exported) -> str:
    """Returns the text of network.py."""
    header = _HEADER.format(
        limits=textwrap.fill(LIMITS, _WIDTH),
        output=exported.output,
        inputs=", ".join(exported.inputs) + (": serialized tf.Examples" if exported.serialized else ""),
        signature=json.dumps(exported.signature),
        answer=json.dumps(exported.output),
        methods=json.dumps(exported.methods, indent=4),
    )
    copied: tuple[Any, ...] = (parts.ExportedGraph, parts.network, parts.export)
    return "\n\n".join([header, *map(inspect.getsource, copied)])
