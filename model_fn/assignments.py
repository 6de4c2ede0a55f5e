"""What the layers of a network assign to their variables in `call`, in a graph that runs only what is asked for.

Keras runs a step as a function, where each assignment is done, in the order of the code. An Estimator's graph is one of
TensorFlow 1, which knows neither: what nobody fetches is never done, and a read may come before what it is to see.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

_ASSIGN = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", "ResourceStridedSliceAssign")
_SCATTER = "ResourceScatter"


def made_so_far() -> int:
    """Returns how many operations the graph has, for `assignments` to know later which are new.

    What is made from now on in a branch or a loop of TensorFlow's is done there as in Keras, also if nothing reads it.
    """
    graph = tf.compat.v1.get_default_graph()
    if not graph.building_function:
        graph._add_control_dependencies = True
    return len(graph.get_operations())


def assignments(begin: int, variables: Sequence[Any], known: Iterable[Any]) -> list[tf.Operation]:
    """Finds the assignments that no step would do, and has them and the reads around them be done in their order.

    Args:
        begin: Of the operations to look at: see `made_so_far`.
        variables: Of the network; those of a strategy with all their copies.
        known: What the step does already, such as moving averages of batch normalisation.

    Returns:
        Operations for the step to do as well. In a function, which does them by itself, there are none.
    """
    graph = tf.compat.v1.get_default_graph()
    if graph.building_function:
        return []
    copies = [copy for variable in variables for copy in _copies(variable)]
    initial = {copy.initializer.name for copy in copies}
    # What is done with each variable, in the order of the code.
    uses: dict[str, list[tf.Operation]] = {copy.handle.op.name: [] for copy in copies}
    for operation in graph.get_operations()[begin:]:
        if operation.name not in initial:
            for name in dict.fromkeys(each.op.name for each in operation.inputs if each.dtype == tf.resource):
                if name in uses:
                    uses[name].append(operation)
    changing = {each.name for each in _all_of(uses) if _changes(graph, each)}
    done = _needed_for(known) if changing else set()
    found = {each.name: each for each in _all_of(uses) if each.name in changing - done}
    for operations in uses.values():
        if any(each.name in found for each in operations):
            _put_in_order(operations, changing)
    return list(found.values())


def _copies(variable: Any) -> list[Any]:
    """The variables of all replicas; of those that a strategy or a policy of Keras wraps, the variable itself."""
    if isinstance(variable, tf.distribute.DistributedValues):
        return [inner for each in variable._values for inner in _copies(each)]
    for wrapped in ("_variable", "_v"):
        inner = getattr(variable, wrapped, None)
        if isinstance(inner, tf.Variable):
            return _copies(inner)
    return [variable]


def _all_of(uses: dict[str, list[tf.Operation]]) -> Iterable[tf.Operation]:
    return (operation for operations in uses.values() for operation in operations)


def _changes(graph: tf.Graph, operation: Any) -> bool:
    """Does an operation, or a node of a function's definition, assign; or a function that it calls."""
    node = operation.node_def if isinstance(operation, tf.Operation) else operation
    if node.op in _ASSIGN or node.op.startswith(_SCATTER):
        return True
    names = [func.name for each in node.attr.values() for func in (each.func, *each.list.func) if func.name]
    functions = [each for each in map(graph._get_function, names) if each is not None]
    return any(_changes(graph, inner) for each in functions for inner in each.cached_definition.node_def)


def _needed_for(wanted: Iterable[Any]) -> set[str]:
    """The names of all operations that are done where these are."""
    waiting = [getattr(each, "op", each) for each in wanted]
    seen: set[str] = set()
    while waiting:
        operation = waiting.pop()
        if operation.name not in seen:
            seen.add(operation.name)
            waiting += [*(each.op for each in operation.inputs), *operation.control_inputs]
    return seen


def _put_in_order(operations: Sequence[tf.Operation], changing: set[str]) -> None:
    """Has each change of a variable wait for what was done with it before, and what comes next for the change."""
    before: list[tf.Operation] = []
    last: list[tf.Operation] = []
    for operation in operations:
        if operation.name in changing:
            operation._add_control_inputs([*last, *before])
            before, last = [], [operation]
        else:
            operation._add_control_inputs(last)
            before.append(operation)
