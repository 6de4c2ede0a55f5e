"""Writes network.py: a layer over an exported graph, and a model with it."""

from __future__ import annotations

import inspect
import json
import textwrap
from typing import Any

from tfx_estimator.model_fn.bridge.graph import parts
from tfx_estimator.model_fn.bridge.graph.exported import Exported
from tfx_estimator.model_fn.bridge.graph.proof import LIMITS

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


def source_of(exported: Exported) -> str:
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
