"""What operations of a graph depend on, and what a new process cannot run of it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Set
from typing import Any

import tensorflow as tf

# Their functions, and data sets, live in the process that created them.
_OF_PROCESS = re.compile(r"(Eager)?PyFunc(Stateless)?|OneShotIterator")


def ancestors(
    roots: Iterable[Any], stops: Collection[str] = (), beyond: Set[tf.Operation] = frozenset(), control: bool = True
) -> set[tf.Operation]:
    """Returns the operations of these and all that they depend on, but by tensors `stops` or by control on `beyond`."""
    left = [each if isinstance(each, tf.Operation) else each.op for each in roots]
    found = set(left)
    while left:
        op = left.pop()
        new = {each.op for each in op.inputs if each.name not in stops}
        new |= set(op.control_inputs) - beyond if control else set()
        left += new - found
        found |= new
    return found


def descendants(ops: Set[tf.Operation], stops: Collection[str] = ()) -> set[tf.Operation]:
    """Returns operations, and those that take their values, but for the values of `stops`."""
    left, found = list(ops), set(ops)
    while left:
        new = {op for each in left.pop().outputs if each.name not in stops for op in each.consumers()} - found
        found |= new
        left += new
    return found


def of_process(graph: tf.Graph, roots: Iterable[Any]) -> str:
    """Returns the type of an operation, on which these depend, that works in this process alone; empty if none does."""
    library = {each.signature.name: each for each in graph.as_graph_def().library.function}
    left, seen = [each.node_def for each in ancestors(roots)], set[str]()
    while left:
        node = left.pop()
        if _OF_PROCESS.fullmatch(node.op):
            return node.op
        for name in set(_functions(node)) - seen:
            seen.add(name)
            left += library[name].node_def if name in library else ()
    return ""


def _functions(node: Any) -> Iterator[str]:
    yield node.op
    for value in node.attr.values():
        yield value.func.name
        yield from (each.name for each in value.list.func)
