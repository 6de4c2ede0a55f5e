"""Reads the outputs of a SavedModel without loading it, and finds the one with the scores of the classes."""

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
# Names of scores in Estimators, their heads and TensorFlow's examples, in order of precedence.
_NAMES = ("probabilities", "scores", "predictions", "logistic", "logits")
# A further output: the name of the class with the highest score.
_CLASSES = "classes"
_FLOATS = (types_pb2.DT_FLOAT, types_pb2.DT_DOUBLE, types_pb2.DT_HALF, types_pb2.DT_BFLOAT16)
# Operations whose result is logits: neither softmax nor sigmoid follows.
LINEAR = ("BiasAdd", "MatMul", "BatchMatMulV2", "Einsum", "Conv2D")
# They change no value, or only round it; of several inputs the first is followed.
_PASSING = {"Identity", "IdentityN", "StopGradient", "EnsureShape", "CheckNumerics", "Cast"}
_PASSING |= {"Reshape", "Squeeze", "ExpandDims", "Transpose", "Pack", "ConcatV2"}
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_ADDITIONS = ("Add", "AddV2")
_PRODUCTS = ("MatMul", "BatchMatMulV2", "Einsum")
# Limit of operations to follow: a foreign graph may have a cycle.
_MOST_STEPS = 200


@dataclass(frozen=True)
class Output:
    """An output of a signature.

    Args:
        dtype: A value of TensorFlow's DataType.
        shape: The shape of a batch; None for an unknown dimension, or an unknown rank.
        operation: The kind of TensorFlow operation that computes it, see `Operations`; empty if unknown.
    """

    name: str
    dtype: int
    shape: Optional[tuple[Optional[int], ...]]
    operation: str = ""


@dataclass(frozen=True)
class Scores:
    """The output that holds the scores of the classes.

    Args:
        from_logits: True for logits, False for probabilities.
        of_two: True for a single score per example, that of the second of two classes.
        is_number: True for a number per example that is no score, as of a regression.
    """

    key: str
    from_logits: bool = False
    of_two: bool = False
    is_number: bool = False


def read_outputs(saved_model: str, signature: str = "serving_default") -> list[Output]:
    """Reads the outputs of a signature, sorted by name."""
    graphs = read_graphs(saved_model)
    for graph in graphs:
        if signature not in graph.signature_def:
            continue
        operations = Operations(graph.graph_def)
        found = sorted(graph.signature_def[signature].outputs.items())
        return [Output(name, info.dtype, _shape(info.tensor_shape), operations.of(info.name)) for name, info in found]
    known = sorted({name for graph in graphs for name in graph.signature_def if not name.startswith("__")})
    raise UserCodeError(
        f"the served model has no signature `{signature}`, only {', '.join(known) or 'none at all'}",
        expected=f"`{signature}`, which the Evaluator and clients call",
        todo="add it to the EstimatorSpec's export_outputs, in mode PREDICT",
    )


def read_labels(saved_model: str, signature: str) -> list[str]:
    """Reads the class names, in the order of the scores, from the table of a signature's output `classes`.

    Returns:
        An empty list if the output does not look them up in a constant table.
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
        declared: The declared output, if any.
        num_classes: The number of classes in the data; None if unknown, 1 for a regression.

    Returns:
        The declared output; else one with a usual name; else the only one of a suitable type and shape.
    """
    by_name = {output.name: output for output in outputs}
    if declared is not None:
        if declared not in by_name:
            raise _refusal(f"{_listed(outputs)}: there is no `{declared}`", num_classes, "correct")
        if by_name[declared].dtype not in _FLOATS:
            kind = types_pb2.DataType.Name(by_name[declared].dtype).removeprefix("DT_").lower()
            raise _refusal(f"{_listed(outputs)}: `{declared}` is {kind}, not scores", num_classes, "correct")
        return _scores(by_name[declared], num_classes)
    fitting = [output for output in outputs if _fits(output, num_classes)]
    named = [output for name in _NAMES for output in fitting if output.name == name]
    if not named and len(fitting) != 1:
        which = f"each of {', '.join(o.name for o in fitting)} may be the scores" if fitting else "none of them fits"
        raise _refusal(f"{_listed(outputs)}: {which}", num_classes, "set")
    return _scores((named or fitting)[0], num_classes)


def choose_of_any(outputs: Sequence[Output], declared: Optional[str]) -> Scores:
    """Finds the scores if the number of classes is unknown.

    An output with one number per example is the score of the second of two classes, if no other output fits.
    """
    if declared is not None:
        return choose_scores(outputs, declared, 2)
    named = [output for output in outputs if output.name in _NAMES]
    for among in (named, outputs):
        for count in (None, 2):
            if any(_fits(output, count) for output in among):
                return choose_scores(among, None, count)
    return choose_scores(outputs, None, None)


def is_of_class(output: Output) -> bool:
    """Returns whether an output with one number per example has a class's score, by its name or its operation."""
    return output.operation == "Sigmoid" or (output.name in _NAMES and output.name != "predictions")


def _fits(output: Output, num_classes: Optional[int]) -> bool:
    """Returns True if an output may be scores: a number for each class, for the second of two, or a regression's."""
    if output.dtype not in _FLOATS:
        return False
    if output.shape is None:
        return True
    width = output.shape[1] if len(output.shape) == 2 else 1
    if len(output.shape) not in (1, 2) or (width == 1 and num_classes not in (1, 2)):
        return False
    return width in (None, 1) or num_classes in (None, width)


def _scores(output: Output, num_classes: Optional[int]) -> Scores:
    of_two = num_classes == 2 and output.shape is not None and output.shape[1:] in ((), (1,))
    linear = num_classes != 1 and (output.name == "logits" or output.operation in LINEAR)
    return Scores(output.name, linear, of_two)


def _shape(proto: object) -> Optional[tuple[Optional[int], ...]]:
    if proto.unknown_rank:  # type: ignore[attr-defined]
        return None
    return tuple(None if dim.size < 0 else int(dim.size) for dim in proto.dim)  # type: ignore[attr-defined]


def _listed(outputs: Sequence[Output]) -> str:
    return f"the served outputs are {', '.join(output.name for output in outputs)}"


def _refusal(what: str, num_classes: Optional[int], verb: str) -> UserCodeError:
    return UserCodeError(
        what,
        expected="an output with a number for each example: float [batch, 1]"
        if num_classes == 1
        else "an output with a score for each class: float [batch, classes]",
        todo=f"{verb} {_KEY}, or add such an output to the export_outputs in mode PREDICT",
    )


class Operations:
    """The operations of a graph, and of the functions that it calls.

    In a SavedModel of TensorFlow 2 the signature is only a call: the computation is in the function library.
    """

    def __init__(self, graph: graph_pb2.GraphDef) -> None:
        self._graph = _Body(graph.node)
        self._functions = {each.signature.name: each for each in graph.library.function}

    def of(self, tensor: str) -> str:
        """Returns the kind of operation that computes a tensor; empty if unknown.

        For the sum of a linear operation and another it is the linear one: a layer may add its bias separately.

        Args:
            tensor: Its name in a signature, `name:output`.
        """
        return self._find(self._graph, tensor, [], _MOST_STEPS)

    def table_of(self, tensor: str) -> list[str]:
        """Returns the constant strings that a tensor is looked up in; empty if it is not."""
        reached = self._reach(self._graph, tensor, [], _MOST_STEPS)
        if reached is None or reached[1].op != "GatherV2":
            return []
        body, node, callers, steps_left = reached
        reached = self._reach(body, node.input[0], callers, steps_left)
        if reached is None or reached[1].op != "Const":
            return []
        return [text.decode() for text in tensor_util.MakeNdarray(reached[1].attr["value"].tensor).reshape(-1)]

    def _find(self, body: _Body, tensor: str, callers: _Callers, steps_left: int) -> str:
        reached = self._reach(body, tensor, callers, steps_left)
        if reached is None:
            return ""
        body, node, callers, steps_left = reached
        if node.op in _PRODUCTS:
            found = [self._find(body, each, callers, steps_left // 2) for each in node.input[:2]]
            # Products of probabilities with those of gates, or with a confusion matrix, are probabilities.
            if "Softmax" in found or set(found) == {"Sigmoid"}:
                return ""
        if node.op in _ADDITIONS:
            found = [self._find(body, each, callers, steps_left // 2) for each in node.input[:2]]
            return next((each for each in found if each in LINEAR), node.op)
        return node.op

    def _reach(
        self, body: _Body, tensor: str, callers: _Callers, steps_left: int
    ) -> Optional[tuple[_Body, node_def_pb2.NodeDef, _Callers, int]]:
        """Follows a tensor back to its operation, through calls and operations in _PASSING; None if unknown."""
        while steps_left > 0:
            name, _, output = tensor.partition(":")
            node = body.nodes.get(name)
            # In a function the output has a name as well: `output:0`.
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
                return body, node, callers, steps_left
            steps_left -= 1
        return None


class _Body:
    """The nodes of a graph, or of a function."""

    def __init__(self, nodes: Iterable[node_def_pb2.NodeDef], arguments: Sequence[str] = ()) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.arguments = arguments


# The stack of function calls: for each the calling body, and its node.
_Callers = list[tuple[_Body, node_def_pb2.NodeDef]]
