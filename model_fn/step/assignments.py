"""What the layers of a network assign to their variables in `call`, in a graph that runs only what is asked for.

Keras runs a step as a function, where each assignment is done, in the order of the code. An Estimator's graph is one of
TensorFlow 1, which knows neither: what nobody fetches is never done, and a read may come before what it is to see.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

_ASSIGN = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", "ResourceStridedSliceAssign")
_SCATTER = "ResourceScatter"


@contextlib.contextmanager
def all_done() -> Iterator[int]:
    """Has what is made within, in a branch or a loop of TensorFlow's, be done there as in Keras, also if not read.

    Yields:
        How many operations the graph has, for `assignments` to know later which are new.
    """
    graph = tf.compat.v1.get_default_graph()
    begin = len(graph.get_operations())
    if graph.building_function or tf.executing_eagerly():
        yield begin
        return
    before = graph._add_control_dependencies

    def have(value: bool) -> None:
        # The threads of all replicas make one graph, in turn: once all are here.
        def replace(_: tf.distribute.Strategy) -> None:
            graph._add_control_dependencies = value

        tf.distribute.get_replica_context().merge_call(replace)

    have(True)
    yield begin
    # Not after an error, when another replica may never come here, and nobody has the graph.
    have(before)


def assignments(begin: int, variables: Sequence[Any], known: Iterable[Any]) -> list[tf.Operation]:
    """Finds the assignments that no step would do, and has them and the reads around them be done in their order.

    So are those that a step does anyway, where a variable is changed more than once.

    Args:
        begin: Of the operations to look at: see `all_done`.
        variables: Of the network, in the context of a replica.
        known: What the step does already, such as moving averages of batch normalisation.

    Returns:
        Operations for the step to do as well. In a function, which does them by itself, there are none.
    """
    graph = tf.compat.v1.get_default_graph()
    if graph.building_function or tf.executing_eagerly():
        return []
    copies = [_own(variable) for variable in variables]
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
        changes = [each for each in operations if each.name in changing]
        # One change that Keras tells of waits for its own read; the second of a layer that is called twice would read
        # what the first has not written yet.
        if any(each.name in found for each in changes) or len(changes) > 1:
            _put_in_order(operations, changing)
    return list(found.values())


def changes_since(begin: int) -> bool:
    """Tells whether a function's graph assigns anything in what was made since; outside of one that is not known."""
    graph = tf.compat.v1.get_default_graph()
    return graph.building_function and any(_changes(graph, each) for each in graph.get_operations()[begin:])


def _own(variable: Any) -> Any:
    """The replica's copy, as another's step does what is assigned to the others; of a wrapped variable, itself."""
    for wrapped in ("_variable", "_v"):
        inner = getattr(variable, wrapped, None)
        if isinstance(inner, tf.Variable):
            return _own(inner)
    return _own(variable._get()) if isinstance(variable, tf.distribute.DistributedValues) else variable


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
