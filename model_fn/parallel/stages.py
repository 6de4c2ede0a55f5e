"""A network as a chain of layers, and its cut into pipeline stages."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Optional

import tensorflow as tf
from tensorflow.python.framework import ops as tf_ops

from tfx_estimator.model_fn.layers import BY_BATCH
from tfx_estimator.model_fn.unconverted import unconverted
from tfx_estimator.model_fn.user_models.keras_model import is_subclassed
from tfx_estimator.pipeline.base.errors import UserCodeError

_OPTION = "trainer.pipeline_parallel"


@dataclass(frozen=True)
class Link:
    """A layer of a chain.

    Args:
        node: Its call in a functional model, with the call's further arguments.
    """

    layer: tf.keras.layers.Layer
    node: Optional[Any] = None

    def __call__(self, inputs: tf.Tensor, training: bool) -> tf.Tensor:
        """Calls the layer as the network does."""
        arguments: tuple[Any, ...] = (inputs,)
        named: dict[str, Any] = {}
        if self.node is not None:
            # Repeated if the layer takes the same input several times, such as `x * x`.
            ids = self.node.flat_input_ids
            arguments, named = self.node.map_arguments({str(ids[0]): [inputs] * len(ids)})
        if self.layer._expects_training_arg and named.get("training") is None:
            named = {**named, "training": training}
        return self.layer(*arguments, **named)


def chain_of(model: tf.keras.Model) -> list[Link]:
    """Returns the layers of a network, each of which takes the output of the one before it."""
    links: list[Link] = []
    if isinstance(model, tf.keras.Sequential):
        links = [Link(layer) for layer in model.layers]
    elif is_subclassed(model):
        raise uncuttable(model, f"it is a class of its own, {type(model).__name__}, whose order of layers is not known")
    else:
        for depth in sorted(model._nodes_by_depth, reverse=True):
            nodes = model._nodes_by_depth[depth]
            if len(nodes) > 1 or len(tf.nest.flatten(nodes[0].outputs)) > 1:
                parallel = ", ".join(node.layer.name for node in nodes)
                raise uncuttable(model, f"it is not a chain: {parallel} are in parallel")
            (node,) = nodes
            if node.is_input:
                continue
            if len(set(node.flat_input_ids)) > 1 or (links and node.parent_nodes[0].layer is not links[-1].layer):
                raise uncuttable(model, f"it is not a chain: {node.layer.name} takes the outputs of several layers")
            links.append(Link(node.layer, node))
    names = [link.layer.name for link in links]
    for link in links:
        if names.count(link.layer.name) > 1:
            raise uncuttable(model, f"{link.layer.name} is called more than once")
        for part in link.layer._flatten_layers():
            if isinstance(part, BY_BATCH):
                raise uncuttable(
                    model,
                    f"{link.layer.name} normalises by the statistics of a batch, which would be those of a microbatch",
                )
    return links


def uncuttable(model: tf.keras.Model, why: str) -> UserCodeError:
    """Returns the error for a network that cannot be cut."""
    return UserCodeError(
        f"{_OPTION}: the network {model.name} cannot be cut into stages: {why}",
        expected="a tf.keras.Sequential, or a functional model whose layers follow one another, without batch "
        "normalisation",
        todo=f"remove {_OPTION}, or write the network so; trainer.model_parallel takes any network",
    )


def no_such_layer(option: str, pattern: str, names: Sequence[str]) -> UserCodeError:
    """Returns the error for a name or pattern that matches no layer."""
    return UserCodeError(
        f"{option}: the network has no layer {pattern!r}",
        expected=f"its layers, or patterns of them: {', '.join(names)}",
        todo="name one of them",
    )


def numbers_of(names: Sequence[str], declared: Sequence[Sequence[str]]) -> list[int]:
    """Returns the stage of each layer, from 0, for stages declared by their layers.

    Args:
        declared: Names and patterns of each stage's layers; a layer that none matches joins the stage before it.
    """
    named: dict[str, int] = {}
    for number, patterns in enumerate(declared):
        for pattern in patterns:
            matching = [name for name in names if name == pattern or fnmatchcase(name, pattern)]
            if not matching:
                raise no_such_layer(f"{_OPTION}.stages", pattern, names)
            named.update(dict.fromkeys(matching, number))
    numbers = list(itertools.accumulate(names, lambda before, name: named.get(name, before), initial=0))[1:]
    if numbers != sorted(numbers) or len(set(numbers)) < len(declared):
        found = "; ".join(f"{name} in stage {number}" for name, number in zip(names, numbers))
        raise UserCodeError(
            f"{_OPTION}.stages: the stages are not in the order of the layers: {found}",
            expected="stages in the network's order, each with at least one layer of its own",
            todo="write the stages in the order of the network",
        )
    return numbers


def costs_of(links: Sequence[Link], inputs: tf.Tensor) -> list[int]:
    """Returns the cost of each layer: its floating-point operations plus the size of its variables.

    Args:
        links: Layers of a network that has its variables.
    """
    costs: list[int] = []

    def count(values: tf.Tensor) -> None:
        graph = tf.compat.v1.get_default_graph()
        for link in links:
            before = len(graph.get_operations())
            values = link(values, training=False)
            made = graph.get_operations()[before:]
            costs.append(flops(made) + sum(each.shape.num_elements() or 0 for each in link.layer.variables))

    if tf.executing_eagerly():
        spec = tf.TensorSpec(inputs.shape, inputs.dtype)
        tf.function(unconverted(count), autograph=False).get_concrete_function(spec)
    else:
        count(inputs)
    return costs


def flops(operations: Iterable[tf.Operation]) -> int:
    """Counts floating-point operations, from known shapes; a multiply-add counts as two."""
    return sum(map(_flops, operations))


def _flops(op: tf.Operation) -> int:
    try:
        return tf_ops.get_stats_for_node_def(op.graph, op.node_def, "flops").value or 0
    except ValueError:
        # Its shape depends on the examples' values, such as the number of categories that are given.
        return 0


def balanced(costs: Sequence[int], count: int) -> list[int]:
    """Cuts a chain so that the cost of the most expensive stage is minimal.

    Returns:
        The stage of each layer, from 0; each stage has at least one layer.
    """
    if len(costs) < count:
        raise UserCodeError(
            f"{_OPTION}.stages: {count}, and the network has {len(costs)} layers",
            expected=f"at most {len(costs)}",
            todo="lower it",
        )
    sums = [0, *itertools.accumulate(costs)]
    # best[stages - 1][end]: the highest cost of a stage among the first `end` layers, and the last stage's begin.
    best = [{end: (sums[end], 0) for end in range(1, len(costs) + 1)}]
    for stage in range(1, count):
        best.append(
            {
                end: min((max(best[-1][begin][0], sums[end] - sums[begin]), begin) for begin in range(stage, end))
                for end in range(stage + 1, len(costs) + 1)
            }
        )
    numbers, end = [0] * len(costs), len(costs)
    for stage in reversed(range(count)):
        begin = best[stage][end][1]
        numbers[begin:end] = [stage] * (end - begin)
        end = begin
    return numbers
