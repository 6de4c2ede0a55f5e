"""By which operations a SavedModel computes what it puts out; the model is not loaded for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensorflow.core.framework import graph_pb2, node_def_pb2

# What computes scores that no softmax or sigmoid has seen.
LINEAR = ("BiasAdd", "MatMul", "BatchMatMulV2", "Einsum", "Conv2D")
# They change no value, but may round it; of those that put several together, the first.
_PASSING = {"Identity", "IdentityN", "StopGradient", "EnsureShape", "CheckNumerics", "Cast"}
_PASSING |= {"Reshape", "Squeeze", "ExpandDims", "Transpose", "Pack", "ConcatV2"}
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_ADDITIONS = ("Add", "AddV2")
_PRODUCTS = ("MatMul", "BatchMatMulV2", "Einsum")
# A graph that came from elsewhere may have a circle.
_FAR = 200


class Operations:
    """The operations of a graph, with those of the functions that it calls.

    A model that TensorFlow 2 saved has but a call at its signature: what computes is in its library.
    """

    def __init__(self, graph: graph_pb2.GraphDef) -> None:
        self._whole = _Body(graph.node)
        self._functions = {each.signature.name: each for each in graph.library.function}

    def of(self, tensor: str) -> str:
        """Returns the kind of operation that computes a tensor; empty if it is not known.

        Of a sum of a linear operation and something else it is the linear one: a layer that adds its bias by itself.

        Args:
            tensor: As a signature names it, `name:output`.
        """
        return self._find(self._whole, tensor, [], _FAR)

    def _find(self, body: _Body, tensor: str, callers: list[tuple[_Body, node_def_pb2.NodeDef]], far: int) -> str:
        name, _, output = tensor.partition(":")
        node = body.nodes.get(name)
        if far == 0:
            return ""
        if node is None:
            # An argument of a function.
            if not callers or name not in body.arguments:
                return ""
            caller, call = callers[-1]
            return self._find(caller, call.input[body.arguments.index(name)], callers[:-1], far - 1)
        # In a function an output is named as well: `output:0`.
        number = int(output.rpartition(":")[2] or 0)
        if node.op in _CALLS and (function := self._functions.get(node.attr["f"].func.name)):
            called = _Body(function.node_def, [each.name for each in function.signature.input_arg])
            result = function.ret[function.signature.output_arg[number].name]
            return self._find(called, result, [*callers, (body, node)], far - 1)
        if node.op in _PASSING:
            return self._find(body, node.input[number if node.op == "IdentityN" else 0], callers, far - 1)
        if node.op in _PRODUCTS:
            found = [self._find(body, each, callers, far // 2) for each in node.input[:2]]
            # Experts' probabilities by their gates', or by a table of confusions, are probabilities.
            if "Softmax" in found or set(found) == {"Sigmoid"}:
                return ""
        if node.op in _ADDITIONS:
            found = [self._find(body, each, callers, far // 2) for each in node.input[:2]]
            return next((each for each in found if each in LINEAR), node.op)
        return node.op


class _Body:
    """The nodes of a graph, or of a function.

    Args:
        nodes: By which it computes.
        arguments: The names of a function's.
    """

    def __init__(self, nodes: Iterable[node_def_pb2.NodeDef], arguments: Sequence[str] = ()) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.arguments = arguments
