"""Floating-point operations of a graph, told from its shapes."""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf
from tensorflow.python.framework import ops as tf_ops


def flops(operations: Iterable[tf.Operation]) -> int:
    """Adds up floating-point operations; a multiplication and its addition are two.

    Args:
        operations: Of one graph, whose shapes are known.
    """
    return sum(tf_ops.get_stats_for_node_def(op.graph, op.node_def, "flops").value or 0 for op in operations)
