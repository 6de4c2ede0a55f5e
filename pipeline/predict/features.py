"""The features that a signature parses of tf.Examples, as its graph says, and rows of a table as such tf.Examples."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2, types_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow.python.framework import tensor_util

_PARSING = re.compile("Parse.*Example")
# Characters of a wrong cell.
_SHOWN = 40
_LARGEST = float(np.finfo(np.float32).max)
_Nodes = Mapping[str, node_def_pb2.NodeDef]


@dataclass(frozen=True)
class Feature:
    """A feature of tf.Examples.

    Args:
        dtype: A value of TensorFlow's DataType.
        needed: Whether each example must have it: it is dense, and has no default.
    """

    dtype: int
    needed: bool


def parsed_features(graph: meta_graph_pb2.MetaGraphDef, signature: str) -> Optional[dict[str, Feature]]:
    """Returns what a signature parses of tf.Examples, by name; None if it parses none."""
    nodes = list(_parsing(graph, signature))
    return {name: feature for node, body in nodes for name, feature in _features(node, body)} if nodes else None


def _parsing(graph: meta_graph_pb2.MetaGraphDef, signature: str) -> Iterator[tuple[node_def_pb2.NodeDef, _Nodes]]:
    """Yields the operations that parse, each with the nodes around it, among all that a signature's outputs need."""
    functions = {each.signature.name: {n.name: n for n in each.node_def} for each in graph.graph_def.library.function}
    outside = {node.name: node for node in graph.graph_def.node}
    todo = [(outside, _node(info.name)) for info in graph.signature_def[signature].outputs.values()]
    seen = set()
    while todo:
        body, name = todo.pop()
        if (id(body), name) in seen or name not in body:
            continue
        seen.add((id(body), name))
        node = body[name]
        if _PARSING.match(node.op):
            yield node, body
        todo += [(body, _node(each)) for each in node.input]
        called = (each.name for attr in node.attr.values() for each in (attr.func, *attr.list.func))
        todo += [(functions[each], inner) for each in called if each in functions for inner in functions[each]]


def _node(tensor: str) -> str:
    return tensor.lstrip("^").partition(":")[0]


def _features(node: node_def_pb2.NodeDef, body: _Nodes) -> Iterator[tuple[str, Feature]]:
    """Yields the features of an operation that parses, as far as their names are constants."""
    attr, inputs = node.attr, [_constant(body.get(_node(each))) for each in node.input if not each.startswith("^")]
    sparse_types, dense_types = attr["sparse_types"].list.type, attr["Tdense"].list.type
    ragged: Sequence[bytes] = ()
    if node.op == "ParseExample":
        # A constant for each name.
        names = [key for each in inputs[2 : len(inputs) - len(dense_types)] if each is not None for key in each]
        sparse, dense = names[: len(sparse_types)], names[len(sparse_types) :]
    elif node.op == "ParseExampleV2":
        sparse, dense, ragged = ([] if each is None else list(each) for each in inputs[2:5])
    elif node.op == "ParseSingleExample":
        sparse, dense = attr["sparse_keys"].list.s, attr["dense_keys"].list.s
    else:
        return
    for name, dtype, default in zip(dense, dense_types, inputs[len(inputs) - len(dense_types) :]):
        yield name.decode(), Feature(dtype, default is not None and not default.size)
    for name, dtype in (*zip(sparse, sparse_types), *zip(ragged, attr["ragged_value_types"].list.type)):
        yield name.decode(), Feature(dtype, False)


def _constant(node: Optional[node_def_pb2.NodeDef]) -> Optional[np.ndarray]:
    if node is None or node.op != "Const":
        return None
    return tensor_util.MakeNdarray(node.attr["value"].tensor).reshape(-1)


def to_example(features: Mapping[str, Feature], columns: Sequence[str], cells: Sequence[Any]) -> bytes:
    """Returns a row as a serialized tf.Example; an empty cell is a missing feature.

    Raises:
        ValueError: A cell is no number where the model parses one, or is empty where it needs a value.
    """
    example = tf.train.Example()
    filled = example.features.feature
    for name, cell in zip(columns, cells):
        if (feature := features.get(name)) is None:
            continue
        values = cell if isinstance(cell, list) else [] if cell is None or cell == "" else [cell]
        if not values:
            if feature.needed:
                raise ValueError(f"column {name} is empty, and the model needs a value")
            continue
        whole = feature.dtype == types_pb2.DT_INT64
        try:
            if feature.dtype == types_pb2.DT_STRING:
                texts = [each if isinstance(each, bytes) else str(each).encode() for each in values]
                filled[name].bytes_list.value.extend(texts)
            else:
                numbers = [_number(each, whole) for each in values]
                (filled[name].int64_list if whole else filled[name].float_list).value.extend(numbers)
        except (TypeError, ValueError, OverflowError):
            kind = "whole number" if whole else "finite number"
            raise ValueError(f"column {name} holds {str(cell)[:_SHOWN]!r}, which is no {kind}") from None
    return example.SerializeToString()


def _number(value: Any, whole: bool) -> Union[int, float]:
    if whole and isinstance(value, (int, str)):
        with contextlib.suppress(ValueError):
            return int(value)
    # pandas writes whole numbers as floats where another cell is empty.
    number = float(value)
    if not abs(number) <= _LARGEST or (whole and not number.is_integer()):
        raise ValueError
    return int(number) if whole else number
