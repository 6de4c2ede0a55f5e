"""A user's function of tensors as source code, traced by the operations that it creates; closures become constants."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.bridge.canned.refusal import refused
from tfx_estimator.model_fn.bridge.canned.text import Source, call, literal
from tfx_estimator.model_fn.bridge.kept.reach import ancestors

_OPERATORS = {"Add": "+", "AddV2": "+", "Sub": "-", "Mul": "*", "RealDiv": "/", "FloorDiv": "//", "FloorMod": "%"}
_OPERATORS |= {"Pow": "**", "Greater": ">", "GreaterEqual": ">=", "Less": "<", "LessEqual": "<="}
# Operations that a public function creates from their inputs alone; others are written as tf.raw_ops.
_FUNCTIONS = {"Log": "tf.math.log", "Log1p": "tf.math.log1p", "Sigmoid": "tf.sigmoid", "Tanh": "tf.tanh"}
_FUNCTIONS |= {"Neg": "tf.negative", "Maximum": "tf.maximum", "Minimum": "tf.minimum", "SelectV2": "tf.where"}
_FUNCTIONS |= {each: f"tf.{each.lower()}" for each in ("Abs", "Cos", "Exp", "Floor", "Reshape", "Sqrt", "Square")}
_FUNCTIONS |= {"SquaredDifference": "tf.math.squared_difference", "StopGradient": "tf.stop_gradient"}
_FUNCTIONS |= {each: f"tf.nn.{each.lower()}" for each in ("Relu", "Elu", "Selu", "Softplus", "Softmax")}
_FUNCTIONS |= {"DivNoNan": "tf.math.divide_no_nan", "ZerosLike": "tf.zeros_like", "ExpandDims": "tf.expand_dims"}
_FUNCTIONS |= {"L2Loss": "tf.nn.l2_loss"}
_REDUCTIONS = {"Sum": "tf.reduce_sum", "Mean": "tf.reduce_mean"}
# Of two outputs, the function returns the first; the other is its gradient.
_LOSSES = {
    "SoftmaxCrossEntropyWithLogits": "tf.nn.softmax_cross_entropy_with_logits",
    "SparseSoftmaxCrossEntropyWithLogits": "tf.nn.sparse_softmax_cross_entropy_with_logits",
}
VARIABLES = ("VarHandleOp", "VariableV2", "Variable")


def lines_of(title: str, function: Callable[..., Any], arguments: Mapping[str, tf.TensorSpec]) -> list[str]:
    """Returns the body of an equivalent function with these argument names."""
    with tf.Graph().as_default():
        given = {name: tf.compat.v1.placeholder(each.dtype, each.shape) for name, each in arguments.items()}
        result = tf.convert_to_tensor(function(**given) if len(given) > 1 else function(*given.values()))
        return lines_between(title, {tensor.ref(): name for name, tensor in given.items()}, result)


def lines_between(title: str, given: dict[Any, str], result: tf.Tensor) -> list[str]:
    """Returns the body of a function that computes the result of a graph from tensors, named by reference."""
    return _Trace(title, given).lines(result)


class _Trace:
    """The operations between arguments and a result."""

    def __init__(self, title: str, names: dict[Any, str]) -> None:
        self._title = title
        self._names = names
        self._uses: dict[Any, int] = {}
        self._varies: dict[tf.Operation, bool] = {ref.deref().op: True for ref in names}
        self._lines: list[str] = []

    def lines(self, result: tf.Tensor) -> list[str]:
        self._visit(result)
        value = self._value(result)
        return [*self._lines, f"return {value}"]

    def _visit(self, tensor: tf.Tensor) -> bool:
        """Counts the uses of each value; returns True if it depends on an argument."""
        tensor = self._source(tensor)
        self._uses[tensor.ref()] = self._uses.get(tensor.ref(), 0) + 1
        op = tensor.op
        if op not in self._varies:
            if op.type in VARIABLES:
                raise refused(f"{self._title}, which reads the variable {op.name} without a layer,")
            # Without short-circuit, to count all uses; first, to name what others are computed from.
            varies = sum(map(self._visit, op.inputs)) > 0
            kinds = {each.type for each in op.op_def.attr}
            if op.op_def.is_stateful or op.type == "Placeholder" or kinds & {"func", "list(func)"}:
                raise refused(
                    f"{self._title}, which creates the TensorFlow operation {op.type},",
                    "compute it in Transform, or in the input_fn; write it by hand; or keep all of it, by --estimator "
                    "and --to kept",
                )
            self._varies[op] = varies
        return self._varies[op]

    def _source(self, tensor: tf.Tensor) -> tf.Tensor:
        """Returns the tensor that this one equals: losses multiply by 1, sum over no axis, and keep a shape."""
        while tensor.ref() not in self._names:
            op, one = tensor.op, None
            if op.type == "Mul":
                one = next((each for each in op.inputs if each.shape.rank == 0 and self._constant(each) == 1), None)
            is_sum = op.type == "Sum" and np.size(self._constant(op.inputs[1])) == 0
            is_same = op.type == "Reshape" and self._keeps_shape(*op.inputs)
            if op.type != "Identity" and one is None and not is_sum and not is_same:
                break
            tensor = next(each for each in op.inputs if each is not one)
        return tensor

    def _keeps_shape(self, tensor: tf.Tensor, shape: tf.Tensor) -> bool:
        """Returns whether a reshape changes nothing, whatever the number of examples."""
        if tensor.shape.rank is None or tensor.shape.as_list().count(None) > 1:
            return False
        # A loss has as many values as there are rows of logits.
        rows = self._source(tensor.op.inputs[0]).ref() if tensor.op.type in _LOSSES else None
        read = [each.outputs[0] for each in ancestors([shape]) if each.type == "Shape"]
        for count in (5, 7):
            sizes = [count if each is None else each for each in tensor.shape]
            given = {each.ref(): sizes for each in read if each.op.inputs[0].ref() == tensor.ref()}
            given |= {each.ref(): [count, *each.op.inputs[0].shape[1:]] for each in read if self._is(each, rows)}
            try:
                wanted = _run(shape, given)
                if np.zeros(sizes, bool).reshape(wanted).shape != tuple(sizes):
                    return False
            except (tf.errors.InvalidArgumentError, TypeError, ValueError):
                return False
        return True

    def _is(self, shape: tf.Tensor, rows: Any) -> bool:
        return rows is not None and self._source(shape.op.inputs[0]).ref() == rows

    def _constant(self, tensor: tf.Tensor) -> Any:
        return None if self._visit(tensor) else _run(tensor)

    def _value(self, tensor: tf.Tensor, is_operand: bool = False) -> str:
        """Returns the expression of a value; one that is used twice gets its own line."""
        tensor = self._source(tensor)
        if tensor.ref() in self._names:
            return self._names[tensor.ref()]
        op = tensor.op
        if not self._varies[op]:
            return _constant(_run(tensor), is_operand)
        if len(op.outputs) > 1 and op.type not in _LOSSES:
            return f"{self._names.get(op) or self._named(op.outputs, self._call(op))}[{op.outputs.index(tensor)}]"
        if op.type in _OPERATORS:
            one, other = (self._value(each, is_operand=True) for each in op.inputs)
            text = f"{one} {_OPERATORS[op.type]} {other}"
        else:
            text, is_operand = self._call(op), False
        if self._uses[tensor.ref()] > 1:
            return self._named([tensor], text)
        return f"({text})" if is_operand else text

    def _named(self, tensors: Any, text: str) -> str:
        """Writes an assignment, and returns its variable."""
        taken = {*self._names.values(), "tf"}
        wanted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", tensors[0].op.type).lower()
        name = next(each for each in (wanted, *(f"{wanted}_{n}" for n in range(2, 10**6))) if each not in taken)
        self._lines.append(f"{name} = {text}")
        self._names[tensors[0].ref() if len(tensors) == 1 else tensors[0].op] = name
        return name

    def _call(self, op: tf.Operation) -> str:
        if op.type == "Cast":
            return f"tf.cast({self._value(op.inputs[0])}, tf.{op.outputs[0].dtype.name})"
        if op.type in _LOSSES:
            logits, labels = (Source(self._value(each)) for each in op.inputs)
            return call(_LOSSES[op.type], labels=labels, logits=logits)
        if op.type == "Fill" and op.inputs[0].op.type == "Shape" and self._constant(op.inputs[1]) == 1:
            return f"tf.ones_like({self._value(op.inputs[0].op.inputs[0])}, tf.{op.outputs[0].dtype.name})"
        if op.type in _REDUCTIONS and (axis := self._constant(op.inputs[1])) is not None:
            options = {} if op.inputs[0].shape.rank == axis.size else {"axis": axis.tolist()}
            options |= {"keepdims": True} if op.get_attr("keep_dims") else {}
            return call(_REDUCTIONS[op.type], Source(self._value(op.inputs[0])), **options)
        if op.type == "StridedSlice" and (index := self._index(op)):
            return f"{self._value(op.inputs[0], is_operand=True)}[{index}]"
        if op.type == "OneHot" and op.get_attr("axis") == -1:
            return f"tf.one_hot({', '.join(self._value(each) for each in op.inputs)})"
        if op.type == "ConcatV2":
            *values, axis = map(self._value, op.inputs)
            return f"tf.concat([{', '.join(values)}], {axis})"
        # The older one also chooses rows.
        is_where = op.type == "Select" and op.inputs[0].shape.rank == op.inputs[1].shape.rank is not None
        if function := _FUNCTIONS.get("SelectV2" if is_where else op.type):
            return f"{function}({', '.join(self._value(each) for each in op.inputs)})"
        return self._raw(op)

    def _index(self, op: tf.Operation) -> str:
        """Returns what stands in the brackets of a slice; empty if its numbers are computed."""
        numbers = [self._constant(each) for each in op.inputs[1:]]
        if any(each is None for each in numbers):
            return ""
        names = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
        masks = {name: op.get_attr(f"{name}_mask") for name in names}

        def part(place: int, begin: int, end: int, stride: int) -> str:
            has = {name for name, mask in masks.items() if mask >> place & 1}
            if found := has & {"ellipsis", "new_axis", "shrink_axis"}:
                # The first of them counts.
                first = min(found, key=names.index)
                return {"ellipsis": "...", "new_axis": "tf.newaxis"}.get(first, str(begin))
            limits = ["" if name in has else str(each) for name, each in (("begin", begin), ("end", end))]
            return ":".join(limits if stride == 1 else [*limits, str(stride)])

        return ", ".join(part(place, *each) for place, each in enumerate(zip(*numbers)))

    def _raw(self, op: tf.Operation) -> str:
        """Returns a call of tf.raw_ops with the names of inputs and attributes."""
        known, left, given = op.op_def, list(op.inputs), dict[str, Any]()
        inferred = {each for arg in known.input_arg for each in (arg.type_attr, arg.number_attr, arg.type_list_attr)}
        for arg in known.input_arg:
            if arg.number_attr or arg.type_list_attr:
                many = op.get_attr(arg.number_attr or arg.type_list_attr)
                count = many if arg.number_attr else len(many)
                given[arg.name] = Source(f"[{', '.join(self._value(left.pop(0)) for _ in range(count))}]")
            else:
                given[arg.name] = Source(self._value(left.pop(0)))
        for attr in known.attr:
            if attr.name not in inferred and op.node_def.attr[attr.name] != attr.default_value:
                given[attr.name] = _attribute(op.get_attr(attr.name))
        # The Python function renames some.
        public = [each for each in inspect.signature(getattr(tf.raw_ops, op.type)).parameters if each != "name"]
        own = [each.name for each in (*known.input_arg, *known.attr) if each.name not in inferred]
        renamed = dict(zip([each for each in own if each not in public], [each for each in public if each not in own]))
        return call(f"tf.raw_ops.{op.type}", **{renamed.get(name, name): each for name, each in given.items()})


def _run(tensor: tf.Tensor, given: Mapping[Any, Any] = MappingProxyType({})) -> Any:
    """Returns a value that depends on no argument; without the control dependencies, which may."""
    definition = tf.compat.v1.GraphDef(versions=tensor.graph.graph_def_versions)
    for op in ancestors([tensor], control=False):
        node = definition.node.add()
        node.CopyFrom(op.node_def)
        node.input[:] = [each for each in node.input if not each.startswith("^")]
        # Others may not be here.
        node.attr.pop("_class", None)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        known = {ref.deref().name: tf.constant(value, ref.deref().dtype) for ref, value in given.items()}
        return session.run(tf.import_graph_def(definition, known, [tensor.name], name="")[0])


def _constant(value: Any, is_operand: bool) -> str:
    if np.ndim(value) == 0 and (is_operand or value.dtype in (np.float32, np.int32)):
        return literal(_number(value))
    return f"tf.constant({literal(_number(value))}, tf.{tf.as_dtype(value.dtype).name})"


def _number(value: Any) -> Any:
    """Returns the shortest decimals that equal the numbers in their type."""
    if np.ndim(value):
        return [_number(each) for each in value]
    if not isinstance(value, np.floating):
        return value.item() if isinstance(value, np.generic) else value
    return float(str(value)) if np.isfinite(value) else Source(f'float("{value}")')


def _attribute(value: Any) -> Any:
    if isinstance(value, tf.DType):
        return Source(f"tf.{value.name}")
    return list(value) if isinstance(value, tf.TensorShape) else value
