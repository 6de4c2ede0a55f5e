"""The cost of a graph by its shapes: peak memory, operations, transfers, and the operations of unknown cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import cond_v2
from tensorflow.python.util import _pywrap_util_port

from tfx_estimator.model_fn.parallel.stages import flops

# Their output shares the memory of their input.
_ALIASES = ("Reshape", "Identity", "IdentityN", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient")
# Their output reuses the memory of an input that no other operation still needs.
_IN_PLACE = (
    *("Relu", "Relu6", "Elu", "Selu", "LeakyRelu", "Tanh", "Sigmoid", "Softplus", "Softmax", "LogSoftmax"),
    *("ReluGrad", "Relu6Grad", "TanhGrad", "SigmoidGrad", "BiasAdd", "Cast", "Neg", "Square", "Exp", "Log", "Sqrt"),
    *("Mul", "Add", "AddV2", "AddN", "Sub", "RealDiv", "Rsqrt", "Maximum", "Minimum", "SelectV2"),
)
# oneDNN copies what they read and write to a layout of its own. It decides which copies are alive together: measured
# was one of the largest tensor. It does not support float16 here; computing that otherwise took, as measured, the
# largest tensor in float32. Without oneDNN, TensorFlow's choice for older processors, there are no copies.
_COPIES = ("Conv2D", "Conv3D", "DepthwiseConv2dNative", "MaxPoolGrad", "AvgPoolGrad")
# Their output is the variable itself.
_READS = ("ReadVariableOp", "VariableV2", "VarHandleOp")
# One of their branches runs; the cost of each is known.
_BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")
# The cost of their inside is unknown.
_OPAQUE = ("While", "StatelessWhile", "PartitionedCall", "StatefulPartitionedCall", "PyFunc")
# The arguments of a function are alive outside of it.
_ARGUMENTS = ("Placeholder",)


def needed(outputs: Iterable[Any], *, after: bool = True) -> list[tf.Operation]:
    """Returns the operations that outputs need, in the order in which they were made.

    Control inputs without side effects are left out, since TensorFlow does not run them either: for example the
    gradients of the images, to which gated gradients add a dependency.

    Args:
        after: True to include control inputs with side effects.
    """
    stack = [(each.op if hasattr(each, "op") else each, True) for each in outputs]
    found: set[tf.Operation] = set()
    left_out: set[tf.Operation] = set()
    while stack:
        op, used = stack.pop()
        # Stateful operations are those of resource variables, arguments by reference those of v1 variables.
        used = used or op.op_def.is_stateful or any(argument.is_ref for argument in op.op_def.input_arg)
        if op in found or (op in left_out and not used):
            continue
        (found if used else left_out).add(op)
        stack += [(tensor.op, used) for tensor in op.inputs]
        stack += [(each, False) for each in op.control_inputs] if after else []
    return sorted(found, key=lambda op: op._id)


def opaque(ops: Sequence[tf.Operation]) -> list[str]:
    """Returns the kinds of operations of unknown cost: loops and functions."""
    inside = [op for branches in map(_branches, ops) for branch in branches for op in branch]
    found = {op.type for op in ops} & set(_OPAQUE)
    return sorted(found.union(opaque(inside)) if inside else found)


def dearest_flops(ops: Sequence[tf.Operation]) -> int:
    """Sums floating-point operations, of branches those of the most expensive one."""
    return flops(ops) + sum(max(map(dearest_flops, branches)) for op in ops if (branches := _branches(op)))


def _branches(op: tf.Operation) -> list[list[tf.Operation]]:
    """Returns the operations of each branch; empty if the operation has none."""
    if op.type not in _BRANCHES:
        return []
    return [graph.get_operations() for graph in cond_v2.get_func_graphs(op)]


def devices_of(ops: Sequence[tf.Operation], variables: Mapping[Any, str]) -> dict[tf.Operation, int]:
    """Returns the index of the device that each operation runs on, among several of one kind.

    Args:
        variables: The devices of the variables, by the tensors that capture them in the graph.

    Returns:
        For each operation its assigned device; else that of a variable that it reads or writes, as TensorFlow places
        it; else the first.
    """
    found = {}
    for op in ops:
        device = op.device
        for tensor in (*op.inputs, *op.outputs) if not device else ():
            device = device or variables.get(tensor.ref(), "")
        found[op] = number_of(device)
    return found


def number_of(device: str) -> int:
    """Returns the index in a device's name; 0 without one."""
    return tf.DeviceSpec.from_string(device or "").device_index or 0


def sent_bytes(ops: Sequence[tf.Operation], devices: Mapping[tf.Operation, int]) -> int:
    """Returns the bytes sent between devices: each tensor once to each device other than its own."""
    sent = {(tensor.ref(), devices[op]): tensor for op in ops for tensor in op.inputs}
    return sum(_bytes(tensor) for (_, device), tensor in sent.items() if devices[tensor.op] != device)


def peak_bytes(
    ops: Sequence[tf.Operation],
    here: Callable[[tf.Operation], bool] = lambda op: True,
    uncounted: Sequence[str] = _READS,
) -> int:
    """Returns the peak of live bytes when the operations run one after another.

    Variables are not counted. A tensor is alive from the operation that makes it to the last one that reads it; on a
    device that it was sent to, from the first to the last one that reads it there.

    Args:
        ops: All operations, in order, with known shapes.
        here: Returns True if an operation runs on the device in question.
        uncounted: Kinds of operations whose outputs are not counted.
    """
    onednn = _pywrap_util_port.IsMklEnabled()
    last: dict[Any, int] = {}
    for place, op in enumerate(ops):
        last.update({tensor.ref(): place for tensor in op.inputs if here(op) or here(tensor.op)})
    # A buffer is identified by the tensor that it was allocated for.
    buffer_of: dict[Any, Any] = {}
    holders: dict[Any, set[Any]] = {}
    sizes: dict[Any, int] = {}
    alive = most = 0
    for place, op in enumerate(ops):

        def is_free(buffer: Any, place: int = place) -> bool:
            return all(last.get(each, -1) <= place for each in holders[buffer])

        for tensor in op.inputs:
            if tensor.ref() not in buffer_of and here(op):
                # Sent from another device.
                buffer_of[tensor.ref()], holders[tensor.ref()] = tensor.ref(), {tensor.ref()}
                sizes[tensor.ref()] = _bytes(tensor)
                alive += sizes[tensor.ref()]
        inputs = [buffer_of[tensor.ref()] for tensor in op.inputs if tensor.ref() in buffer_of]
        for number, tensor in enumerate(op.outputs if here(op) else ()):
            size = 0 if op.type in uncounted else _bytes(tensor)
            shared = None
            if op.type in _ALIASES and inputs:
                shared = inputs[min(number, len(inputs) - 1)]
            elif op.type in _IN_PLACE:
                shared = next((each for each in inputs if sizes[each] == size and is_free(each)), None)
            if shared is None:
                shared = tensor.ref()
                holders[shared], sizes[shared] = set(), size
                alive += size
            buffer_of[tensor.ref()] = shared
            holders[shared].add(tensor.ref())
        touched = {*inputs, *(buffer_of[tensor.ref()] for tensor in op.outputs if here(op))}
        copies = onednn and here(op) and any(op.type.startswith(name) for name in _COPIES)
        inside = [peak_bytes(each, uncounted=(*uncounted, *_ARGUMENTS)) for each in _branches(op)] if here(op) else []
        # The outputs of a branch are counted both inside and outside.
        own = max(inside, default=0) - (sum(map(_bytes, op.outputs)) if inside else 0)
        copied = max((sizes[each] for each in touched), default=0) if copies else 0
        if any(tensor.dtype == tf.float16 for tensor in op.outputs):
            copied *= 2
        most = max(most, alive + max(own, copied))
        for buffer in touched:
            if is_free(buffer):
                alive -= sizes[buffer]
                sizes[buffer] = 0
    return most


def _bytes(tensor: tf.Tensor) -> int:
    if tensor.dtype in (tf.resource, tf.variant, tf.string):
        return 0
    count = tensor.shape.num_elements() if tensor.shape.rank is not None else None
    return (count or 0) * tensor.dtype.size
