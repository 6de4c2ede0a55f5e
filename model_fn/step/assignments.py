"""Assignments to variables in the `call` of a network's layers, in an Estimator's TF1 graph.

Keras runs a step as a tf.function, which executes every assignment, in the order of the code. A TF1 graph does neither:
an assignment that nothing fetches never runs, and a read may run before an assignment that precedes it in the code.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

_ASSIGN = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", "ResourceStridedSliceAssign")
_SCATTER = "ResourceScatter"


@contextlib.contextmanager
def automatic_dependencies() -> Iterator[int]:
    """Runs assignments within TensorFlow's branches and loops even if nothing reads them, as in Keras.

    Yields:
        The graph's number of operations, by which `assignments` later finds the new ones.
    """
    graph = tf.compat.v1.get_default_graph()
    begin = len(graph.get_operations())
    if graph.building_function or tf.executing_eagerly():
        yield begin
        return
    before = graph._add_control_dependencies

    def set_flag(value: bool) -> None:
        # The replicas' threads build one graph in turns: set it once all have arrived here.
        def replace(_: tf.distribute.Strategy) -> None:
            graph._add_control_dependencies = value

        tf.distribute.get_replica_context().merge_call(replace)

    set_flag(True)
    yield begin
    # Not after an error: another replica may never arrive here, and the graph is discarded.
    set_flag(before)


def assignments(begin: int, variables: Sequence[Any], known: Iterable[Any]) -> list[tf.Operation]:
    """Finds the assignments that a step would not run, and orders them and the reads around them as in the code.

    It also orders those that a step runs anyway, if a variable is assigned more than once.

    Args:
        begin: Index of the first operation to look at: see `automatic_dependencies`.
        variables: The network's, in replica context.
        known: Operations that the step runs already, such as moving averages of batch normalisation.

    Returns:
        Operations for the step to run as well. Empty in a tf.function, which runs them automatically.
    """
    graph = tf.compat.v1.get_default_graph()
    if graph.building_function or tf.executing_eagerly():
        return []
    copies = [_own(variable) for variable in variables]
    initial = {copy.initializer.name for copy in copies}
    # The operations on each variable, in the order of the code.
    uses: dict[str, list[tf.Operation]] = {copy.handle.op.name: [] for copy in copies}
    for operation in graph.get_operations()[begin:]:
        if operation.name not in initial:
            for name in dict.fromkeys(each.op.name for each in operation.inputs if each.dtype == tf.resource):
                if name in uses:
                    uses[name].append(operation)
    changing = {each.name for each in _all_of(uses) if _changes(graph, each)}
    run_already = _needed_for(known) if changing else set()
    found = {each.name: each for each in _all_of(uses) if each.name in changing - run_already}
    for operations in uses.values():
        changes = [each for each in operations if each.name in changing]
        # A single update that Keras lists waits for its own read; the second one of a layer that is called twice would
        # read the variable before the first has written it.
        if any(each.name in found for each in changes) or len(changes) > 1:
            _put_in_order(operations, changing)
    return list(found.values())


def changes_since(begin: int) -> bool:
    """True if a tf.function's graph has assignments among operations from `begin` on; False outside of one."""
    graph = tf.compat.v1.get_default_graph()
    return graph.building_function and any(_changes(graph, each) for each in graph.get_operations()[begin:])


def _own(variable: Any) -> Any:
    """Returns the current replica's copy of a variable, without wrappers; each replica's step assigns its own copy."""
    for wrapped in ("_variable", "_v"):
        inner = getattr(variable, wrapped, None)
        if isinstance(inner, tf.Variable):
            return _own(inner)
    return _own(variable._get()) if isinstance(variable, tf.distribute.DistributedValues) else variable


def _all_of(uses: dict[str, list[tf.Operation]]) -> Iterable[tf.Operation]:
    return (operation for operations in uses.values() for operation in operations)


def _changes(graph: tf.Graph, operation: Any) -> bool:
    """True if an operation, or a node of a function's definition, or a function that it calls, assigns."""
    node = operation.node_def if isinstance(operation, tf.Operation) else operation
    if node.op in _ASSIGN or node.op.startswith(_SCATTER):
        return True
    names = [func.name for each in node.attr.values() for func in (each.func, *each.list.func) if func.name]
    functions = [each for each in map(graph._get_function, names) if each is not None]
    return any(_changes(graph, inner) for each in functions for inner in each.cached_definition.node_def)


def _needed_for(wanted: Iterable[Any]) -> set[str]:
    """Returns the names of these operations and of all that they depend on."""
    waiting = [getattr(each, "op", each) for each in wanted]
    seen: set[str] = set()
    while waiting:
        operation = waiting.pop()
        if operation.name not in seen:
            seen.add(operation.name)
            waiting += [*(each.op for each in operation.inputs), *operation.control_inputs]
    return seen


def _put_in_order(operations: Sequence[tf.Operation], changing: set[str]) -> None:
    """Makes each assignment wait for the earlier operations on its variable, and the later ones wait for it."""
    before: list[tf.Operation] = []
    last: list[tf.Operation] = []
    for operation in operations:
        if operation.name in changing:
            operation._add_control_inputs([*last, *before])
            before, last = [], [operation]
        else:
            operation._add_control_inputs(last)
            before.append(operation)
