"""What a graph needs, told from its shapes alone: the most memory at once, and whose costs are not seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

# Their output is their input's memory.
_ALIASES = ("Reshape", "Identity", "IdentityN", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient")
# Their output takes the memory of an input that nobody else needs any more.
_IN_PLACE = (
    *("Relu", "Relu6", "Elu", "Selu", "LeakyRelu", "Tanh", "Sigmoid", "Softplus", "Softmax", "LogSoftmax"),
    *("ReluGrad", "Relu6Grad", "TanhGrad", "SigmoidGrad", "BiasAdd", "Cast", "Neg", "Square", "Exp", "Log", "Sqrt"),
    *("Mul", "Add", "AddV2", "AddN", "Sub", "RealDiv", "Rsqrt", "Maximum", "Minimum", "SelectV2"),
)
# oneDNN lays out what they read and write in its own order, in a copy; which copies are alive together is its own
# choice: one of the largest tensor is what was measured.
_COPIES = ("Conv2D", "Conv3D", "DepthwiseConv2dNative", "MaxPoolGrad", "AvgPoolGrad")
# Their output is the variable itself.
_READS = ("ReadVariableOp", "VariableV2", "VarHandleOp")
# What is inside is not seen.
_OPAQUE = ("While", "StatelessWhile", "If", "StatelessIf", "PartitionedCall", "StatefulPartitionedCall", "PyFunc")


def needed(outputs: Iterable[Any], *, after: bool = True) -> list[tf.Operation]:
    """Returns the operations that outputs need, in the order in which they were made.

    What only has to run before, and changes nothing, is not run by TensorFlow either: such are the gradients of the
    images, which a gated gradient names beside those of a kernel.

    Args:
        outputs: Tensors and operations of one graph.
        after: Are those among them that only have to run before.
    """
    stack = [(each.op if hasattr(each, "op") else each, True) for each in outputs]
    found: set[tf.Operation] = set()
    left_out: set[tf.Operation] = set()
    while stack:
        op, used = stack.pop()
        # The one is of variables that are resources, the other of those that are references.
        used = used or op.op_def.is_stateful or any(argument.is_ref for argument in op.op_def.input_arg)
        if op in found or (op in left_out and not used):
            continue
        (found if used else left_out).add(op)
        stack += [(tensor.op, used) for tensor in op.inputs]
        stack += [(each, False) for each in op.control_inputs] if after else []
    return sorted(found, key=lambda op: op._id)


def opaque(ops: Sequence[tf.Operation]) -> list[str]:
    """Returns the kinds of operations whose costs are not seen: loops, branches and functions.

    Args:
        ops: Of one graph.
    """
    return sorted({op.type for op in ops} & set(_OPAQUE))


def peak_bytes(ops: Sequence[tf.Operation]) -> int:
    """Returns the most bytes that are alive at once, when one operation runs after another.

    Variables are not counted. A tensor lives from the operation that makes it to the last one that reads it.

    Args:
        ops: All that run, in their order; their shapes are known.
    """
    last: dict[Any, int] = {}
    for place, op in enumerate(ops):
        last.update({tensor.ref(): place for tensor in op.inputs})
    # A buffer is known by the tensor that it was made for.
    buffer_of: dict[Any, Any] = {}
    holders: dict[Any, set[Any]] = {}
    sizes: dict[Any, int] = {}
    alive = most = 0
    for place, op in enumerate(ops):

        def is_free(buffer: Any, place: int = place) -> bool:
            return all(last.get(each, -1) <= place for each in holders[buffer])

        inputs = [buffer_of[tensor.ref()] for tensor in op.inputs]
        for number, tensor in enumerate(op.outputs):
            size = 0 if op.type in _READS else _bytes(tensor)
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
        touched = {buffer_of[tensor.ref()] for tensor in (*op.inputs, *op.outputs)}
        copies = any(op.type.startswith(name) for name in _COPIES)
        most = max(most, alive + (max((sizes[each] for each in touched), default=0) if copies else 0))
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
