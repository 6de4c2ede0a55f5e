"""Rewrites reference variables, which exports of TensorFlow 1 have, as resource variables: TensorFlow 2 trains them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf.message import DecodeError
from tensorflow.core.framework import graph_pb2, node_def_pb2, variable_pb2
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import op_def_registry

from tfx_estimator.model_fn.bridge.graph.exported import FILE
from tfx_estimator.pipeline.base.errors import UserCodeError

_VARIABLES = ("Variable", "VariableV2")
# Others have the same name after `Resource`, such as ResourceScatterAdd.
_NAMES = {
    **{f"Assign{each}": f"Assign{each}VariableOp" for each in ("", "Add", "Sub")},
    "IsVariableInitialized": "VarIsInitializedOp",
}
_READ, _TRAINED = "as_resource", "trainable_variables"


def rewrite(folder: str) -> None:
    """Rewrites those of a SavedModel, which may have none."""
    path = os.path.join(folder, FILE)
    with open(path, "rb") as file:
        saved = saved_model_pb2.SavedModel.FromString(file.read())
    for each in saved.meta_graphs:
        _declare(each.collection_def, _rewrite(each.graph_def, each.signature_def.values()))
    with open(path, "wb") as file:
        file.write(saved.SerializeToString(deterministic=True))


def _rewrite(graph: graph_pb2.GraphDef, signatures: Iterable[Any]) -> set[str]:
    """Rewrites a graph and what its signatures return; returns the names of its variables."""
    nodes, reads = {each.name: each for each in graph.node}, dict[str, node_def_pb2.NodeDef]()
    variables = {name for name, each in nodes.items() if each.op in _VARIABLES}

    def variable_of(name: str) -> str:
        """Returns the variable that an operation returns a reference to; empty if it does not."""
        if (name := name.removesuffix(":0")) in variables or name not in nodes:
            return name if name in variables else ""
        node = nodes[name]
        returns = node.input and any(each.is_ref for each in getattr(op_def_registry.get(node.op), "output_arg", ()))
        return variable_of(node.input[0]) if returns else ""

    def read(name: str, variable: str) -> str:
        made = node_def_pb2.NodeDef(name=f"{name}/{_READ}", op="ReadVariableOp", device=nodes[variable].device)
        made.input.extend([variable, *([f"^{name}"] if name != variable else [])])
        made.attr["dtype"].CopyFrom(nodes[variable].attr["dtype"])
        return reads.setdefault(name, made).name

    changed = []
    for name in variables:
        read(name, name)
    for each in (output for signature in signatures for output in signature.outputs.values()):
        if variable := variable_of(each.name):
            each.name = f"{read(each.name.removesuffix(':0'), variable)}:0"
    for node in nodes.values():
        takes = [each.is_ref for each in getattr(op_def_registry.get(node.op), "input_arg", ())]
        given, writes = list[str](), False
        for index, each in enumerate(node.input):
            name, variable = each.removesuffix(":0"), variable_of(each)
            if variable and index < len(takes) and takes[index]:
                writes, given = True, [*given, variable, *([f"^{name}"] if name != variable else [])]
            else:
                given.append(read(name, variable) if variable else each)
        changed.append((node, writes, sorted(given, key=lambda each: each.startswith("^"))))
    for node, writes, given in changed:
        del node.input[:]
        node.input.extend(given)
        if node.op in _VARIABLES:
            node.attr["shared_name"].s = node.attr["shared_name"].s or node.name.encode()
            _rename(node, "VarHandleOp")
        elif writes:
            _rename(node, _NAMES.get(node.op, f"Resource{node.op}"))
    graph.node.extend(reads.values())
    return variables


def _rename(node: node_def_pb2.NodeDef, name: str) -> None:
    """Makes it another operation with the same inputs and attributes; the type may have another name."""
    if (definition := op_def_registry.get(name)) is None:
        raise UserCodeError(
            f"{node.name} of the export is a {node.op} on a reference variable, which resource variables do not have",
            expected="variables, operations that assign to them, and optimizers",
            todo="convert the network, or keep the graph of its training by --estimator",
        )
    takes = {each.name for each in definition.attr}
    if "dtype" in takes and "T" in node.attr:
        node.attr["dtype"].CopyFrom(node.attr["T"])
    for each in set(node.attr) - takes - {"_class"}:
        del node.attr[each]
    node.op = name


def _declare(collections: Mapping[str, Any], variables: set[str]) -> None:
    """Tells of the variables in a meta graph's collections."""
    found = {name: each.bytes_list.value for name, each in collections.items() if each.bytes_list.value}
    named = [(name, index, _definition(each)) for name, values in found.items() for index, each in enumerate(values)]
    known = [(name, index, each) for name, index, each in named if each.variable_name.removesuffix(":0") in variables]
    trained = {each.variable_name for name, _, each in known if name == _TRAINED}
    for name, index, each in known:
        each.is_resource, each.trainable = True, each.variable_name in trained
        each.snapshot_name = f"{each.variable_name.removesuffix(':0')}/{_READ}:0"
        found[name][index] = each.SerializeToString(deterministic=True)


def _definition(given: bytes) -> variable_pb2.VariableDef:
    try:
        return variable_pb2.VariableDef.FromString(given)
    except DecodeError:
        return variable_pb2.VariableDef()
