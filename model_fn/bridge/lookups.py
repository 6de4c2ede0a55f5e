"""Keeps the lookups of a training's embeddings from copying their tables.

`embedding_column` and a linear model's columns combine rows by `embedding_lookup_sparse`. It gathers them, which
Grappler replaces by a read of the whole variable; or it reads the variable itself, where that and the ids are placed on
one device. That is free where the variable is constant. A training updates it by rows, and from its first step on
TensorFlow copies such a variable whenever it is read: of 1,000,000 x 16, 64 MB a step.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

_REDUCTIONS = ("SparseSegmentMean", "SparseSegmentSum", "SparseSegmentSqrtN")
_MENDED = "_tfx_estimator_lookups"


def mend_lookups() -> None:
    """Mends the graph of each session that TensorFlow opens with a Scaffold, as each Estimator's; idempotently."""
    scaffold = tf.compat.v1.train.Scaffold
    original = scaffold.finalize
    if hasattr(original, _MENDED):
        return

    @functools.wraps(original)
    def finalize(self: Any) -> Any:
        graph = tf.compat.v1.get_default_graph()
        if not graph.finalized:
            keep_gathers(graph)
        return original(self)

    setattr(finalize, _MENDED, True)
    scaffold.finalize = finalize


def keep_gathers(graph: tf.Graph) -> None:
    """Lets each reduction of a variable's rows gather them, by operations that Grappler leaves."""
    for operation in graph.get_operations():
        # Within a condition or a loop of TensorFlow 1 new operations would need that one's context.
        if operation.type not in _REDUCTIONS or operation._get_control_flow_context() is not None:
            continue
        rows, indices, _ = operation.inputs
        source = _source(rows)
        with graph.as_default(), tf.device(operation.device), tf.control_dependencies(None):
            if source.type == "ReadVariableOp":
                before = [each for each in source.control_inputs if each.type != "DisableCopyOnRead"]
                with tf.control_dependencies(before):
                    unique, places = tf.unique(indices, indices.dtype)
                    rows = tf.raw_ops.ResourceGather(resource=source.inputs[0], indices=unique, dtype=rows.dtype)
                operation._update_input(1, places)
            elif source.type != "ResourceGather":
                continue
            operation._update_input(0, tf.ensure_shape(rows, rows.shape))


def _source(tensor: tf.Tensor) -> tf.Operation:
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor.op
