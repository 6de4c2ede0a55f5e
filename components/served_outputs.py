"""What a SavedModel puts out, and which of it are the scores of the classes; the model is not loaded for it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Optional

from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tensorflow.python.framework import tensor_util
from tfx.dsl.io import fileio

from tfx_estimator.pipeline.base.errors import UserCodeError

_KEY = "evaluator.prediction_key"
# How Estimators, their heads and TensorFlow's examples call scores; the first that is there is meant.
_NAMES = ("probabilities", "scores", "predictions", "logistic", "logits")
# Served beside them: the name of the class with the highest one.
_CLASSES = "classes"
_FLOATS = (types_pb2.DT_FLOAT, types_pb2.DT_DOUBLE, types_pb2.DT_HALF, types_pb2.DT_BFLOAT16)
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


@dataclass(frozen=True)
class Output:
    """An output of a signature.

    Args:
        dtype: A value of TensorFlow's DataType.
        shape: Of a batch; None where a dimension is not known, or all of it.
        operation: The kind of TensorFlow operation that computes it, see `Operations`; empty if that is not known.
    """

    name: str
    dtype: int
    shape: Optional[tuple[Optional[int], ...]]
    operation: str = ""


@dataclass(frozen=True)
class Scores:
    """The output that holds the scores of the classes.

    Args:
        from_logits: Are they logits, not probabilities.
        of_two: Is it one score an example, that of the second of two classes.
    """

    key: str
    from_logits: bool = False
    of_two: bool = False


def read_outputs(saved_model: str, signature: str = "serving_default") -> list[Output]:
    """Reads the outputs of a signature, sorted by name."""
    graphs = read_graphs(saved_model)
    for graph in graphs:
        if signature not in graph.signature_def:
            continue
        operations = Operations(graph.graph_def)
        found = sorted(graph.signature_def[signature].outputs.items())
        return [Output(name, info.dtype, _shape(info.tensor_shape), operations.of(info.name)) for name, info in found]
    there = sorted({name for graph in graphs for name in graph.signature_def if not name.startswith("__")})
    raise UserCodeError(
        f"the served model has no signature `{signature}`, only {', '.join(there) or 'none at all'}",
        expected=f"`{signature}`, which the Evaluator and clients call",
        todo="name it among the EstimatorSpec's export_outputs, in mode PREDICT",
    )


def read_labels(saved_model: str, signature: str) -> list[str]:
    """Reads the names of the classes, in the order of their scores, from what a signature serves as `classes`.

    Returns:
        None where it does not look them up in a list that the model holds.
    """
    for graph in read_graphs(saved_model):
        outputs = graph.signature_def[signature].outputs if signature in graph.signature_def else {}
        if _CLASSES in outputs and outputs[_CLASSES].dtype == types_pb2.DT_STRING:
            return Operations(graph.graph_def).table_of(outputs[_CLASSES].name)
    return []


def read_graphs(saved_model: str) -> Sequence[meta_graph_pb2.MetaGraphDef]:
    """Reads the graphs of a SavedModel."""
    proto = saved_model_pb2.SavedModel()
    with fileio.open(os.path.join(saved_model, "saved_model.pb"), "rb") as file:
        proto.ParseFromString(file.read())
    return proto.meta_graphs


def choose_scores(outputs: Sequence[Output], declared: Optional[str], num_classes: Optional[int]) -> Scores:
    """Finds the scores among a signature's outputs.

    Args:
        declared: The output that the declaration names; None leaves it open.
        num_classes: Of the data; None if it is not known.

    Returns:
        The scores: of the declared output; else of the one whose name says so; else of the only one that may be it.
    """
    by_name = {output.name: output for output in outputs}
    if declared is not None:
        if declared not in by_name:
            raise _refusal(f"{_told(outputs)}: there is no `{declared}`", outputs, "correct")
        if by_name[declared].dtype not in _FLOATS:
            kind = types_pb2.DataType.Name(by_name[declared].dtype).removeprefix("DT_").lower()
            raise _refusal(f"{_told(outputs)}: `{declared}` is {kind}, no scores", outputs, "correct")
        return _scores(by_name[declared], num_classes)
    fitting = [output for output in outputs if _fits(output, num_classes)]
    named = [output for name in _NAMES for output in fitting if output.name == name]
    if not named and len(fitting) != 1:
        which = f"each of {', '.join(o.name for o in fitting)} may be the scores" if fitting else "none of them fits"
        raise _refusal(f"{_told(outputs)}: {which}", outputs, "set")
    return _scores((named or fitting)[0], num_classes)


def choose_of_any(outputs: Sequence[Output], declared: Optional[str]) -> Scores:
    """Finds the scores where nobody tells how many classes there are.

    An output of one number an example is the score of the second of two classes, if no other may be the scores.
    """
    if declared is not None:
        return choose_scores(outputs, declared, 2)
    named = [output for output in outputs if output.name in _NAMES]
    for among in (named, outputs):
        for count in (None, 2):
            if any(_fits(output, count) for output in among):
                return choose_scores(among, None, count)
    return choose_scores(outputs, None, None)


def _fits(output: Output, num_classes: Optional[int]) -> bool:
    """May it be scores: a number for each class, or for the second of two."""
    if output.dtype not in _FLOATS:
        return False
    if output.shape is None:
        return True
    width = output.shape[1] if len(output.shape) == 2 else 1
    if len(output.shape) not in (1, 2) or (width == 1 and num_classes != 2):
        return False
    return width in (None, 1) or num_classes in (None, width)


def _scores(output: Output, num_classes: Optional[int]) -> Scores:
    of_two = num_classes == 2 and output.shape is not None and output.shape[1:] in ((), (1,))
    return Scores(output.name, output.name == "logits" or output.operation in LINEAR, of_two)


def _shape(proto: object) -> Optional[tuple[Optional[int], ...]]:
    if proto.unknown_rank:  # type: ignore[attr-defined]
        return None
    return tuple(None if dim.size < 0 else int(dim.size) for dim in proto.dim)  # type: ignore[attr-defined]


def _told(outputs: Sequence[Output]) -> str:
    return f"the served outputs are {', '.join(output.name for output in outputs)}"


def _refusal(what: str, outputs: Sequence[Output], verb: str) -> UserCodeError:
    return UserCodeError(
        what,
        expected="an output with a score for each class: float [batch, classes]",
        todo=f"{verb} {_KEY}, or add such an output to the export_outputs in mode PREDICT",
    )


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

    def table_of(self, tensor: str) -> list[str]:
        """Returns the constant texts that a tensor is looked up in; none if it is not."""
        reached = self._reach(self._whole, tensor, [], _FAR)
        if reached is None or reached[1].op != "GatherV2":
            return []
        body, node, callers, far = reached
        reached = self._reach(body, node.input[0], callers, far)
        if reached is None or reached[1].op != "Const":
            return []
        return [text.decode() for text in tensor_util.MakeNdarray(reached[1].attr["value"].tensor).reshape(-1)]

    def _find(self, body: _Body, tensor: str, callers: _Callers, far: int) -> str:
        reached = self._reach(body, tensor, callers, far)
        if reached is None:
            return ""
        body, node, callers, far = reached
        if node.op in _PRODUCTS:
            found = [self._find(body, each, callers, far // 2) for each in node.input[:2]]
            # Experts' probabilities by their gates', or by a table of confusions, are probabilities.
            if "Softmax" in found or set(found) == {"Sigmoid"}:
                return ""
        if node.op in _ADDITIONS:
            found = [self._find(body, each, callers, far // 2) for each in node.input[:2]]
            return next((each for each in found if each in LINEAR), node.op)
        return node.op

    def _reach(
        self, body: _Body, tensor: str, callers: _Callers, far: int
    ) -> Optional[tuple[_Body, node_def_pb2.NodeDef, _Callers, int]]:
        """Goes back to what computes a tensor, through calls and what changes no value; None if it is not known."""
        while far > 0:
            name, _, output = tensor.partition(":")
            node = body.nodes.get(name)
            # In a function an output is named as well: `output:0`.
            number = int(output.rpartition(":")[2] or 0)
            if node is None:
                # An argument of a function.
                if not callers or name not in body.arguments:
                    return None
                caller, call = callers[-1]
                body, tensor, callers = caller, call.input[body.arguments.index(name)], callers[:-1]
            elif node.op in _CALLS and (function := self._functions.get(node.attr["f"].func.name)):
                callers = [*callers, (body, node)]
                body = _Body(function.node_def, [each.name for each in function.signature.input_arg])
                tensor = function.ret[function.signature.output_arg[number].name]
            elif node.op in _PASSING:
                tensor = node.input[number if node.op == "IdentityN" else 0]
            else:
                return body, node, callers, far
            far -= 1
        return None


class _Body:
    """The nodes of a graph, or of a function."""

    def __init__(self, nodes: Iterable[node_def_pb2.NodeDef], arguments: Sequence[str] = ()) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.arguments = arguments


# The functions that are being looked into, each by the body that calls it and the node there.
_Callers = list[tuple[_Body, node_def_pb2.NodeDef]]
