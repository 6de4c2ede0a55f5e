"""Cuts a training graph at apply_gradients, so that replicas can add up their gradients.

What is before the cut depends on the examples and runs once a replica, such as the updates of a normalisation's
averages; what is after it depends on the gradients alone. Only control dependencies of the second part on the first are
removed, since the second runs later.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection
from typing import Any

import tensorflow as tf

from tfx_estimator.model_fn.bridge.kept.optimizers import Applied
from tfx_estimator.model_fn.bridge.kept.reach import ancestors, descendants

_WRITES = re.compile(r"Assign|Apply|Scatter")


@dataclasses.dataclass(frozen=True)
class Cut:
    """The two parts.

    Args:
        gradients: Dense tensors of the gradients, by name.
        before: Operations that the first part runs in addition to loss and gradients.
        after: Operations that the second part runs.
        removed: Names of control dependencies to remove, by the operation that has them.
        per_replica: Names of variables that each replica changes by its own examples.
    """

    gradients: dict[str, tf.Tensor]
    before: list[tf.Operation]
    after: list[tf.Operation]
    removed: dict[str, set[str]]
    per_replica: list[str]


def cut(
    graph: tf.Graph, loss: tf.Tensor, train_op: Any, examples: Collection[tf.Tensor], applied: list[Applied]
) -> Cut | str:
    """Finds the cut, or returns why there is none."""
    gradients = _components(applied)
    if not gradients:
        return "its model_fn does not call an optimizer's apply_gradients"
    if any(each.graph is not graph for each in gradients.values()):
        return "its model_fn applies gradients inside of a condition or a loop"
    stops = {each.name for each in gradients.values()}
    root = graph.as_graph_element(train_op)
    root = root if isinstance(root, tf.Operation) else root.op
    reached = ancestors([root], stops)
    of_examples = descendants({each.op for each in examples}, stops) & reached
    # What slim's create_train_op and tf.contrib.layers.optimize_loss return takes the loss, after the updates.
    after = [each for each in (root.control_inputs if root in of_examples else [root]) if each not in of_examples]
    removed = {
        each.name: found
        for each in ancestors(after, stops, of_examples)
        if (found := {one.name for one in each.control_inputs if one in of_examples})
    }
    named = set[str]().union(*removed.values(), (each.name for each in root.control_inputs))
    before = [each for each in of_examples if each.name in named or (each is root and _WRITES.search(root.type))]
    first = ancestors([loss, *gradients.values(), *before])
    applies = {op for each in gradients.values() for op in each.consumers()} & (reached - of_examples)
    if first & applies:
        return "its model_fn computes gradients after it has applied others"
    variables = tf.compat.v1.global_variables()
    written = [each for each in variables if _is_written(each, first)]
    if any(each.trainable for each in written):
        return "its model_fn changes weights without an optimizer's apply_gradients"
    return Cut(gradients, before, after, removed, [each.op.name for each in written if each.dtype.is_floating])


def _components(applied: list[Applied]) -> dict[str, tf.Tensor]:
    found: dict[str, tf.Tensor] = {}
    for index, each in enumerate(one for call in applied for one in call.gradients):
        if isinstance(each, tf.IndexedSlices):
            found |= {f"gradient_{index}/values": each.values, f"gradient_{index}/indices": each.indices}
        else:
            found[f"gradient_{index}"] = each
    return found


def _is_written(variable: Any, ops: set[tf.Operation]) -> bool:
    return any(op in ops and _WRITES.search(op.type) for op in variable.handle.consumers())
