"""The SavedModel that an Estimator exported: its meta graph, read without loading it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework import graph_pb2, variable_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.base.text import one_line

FILE = "saved_model.pb"
SERVE = "serve"
# Names that Estimators and their heads give to the output of a loss, in order of preference.
_ANSWERS = ("logits", "probabilities", "predictions", "scores", "outputs")
# Preferred signatures.
_USUAL = ("serving_default", "predict")
_PARSING = re.compile("Parse.*Example")
_TRAINED = "trainable_variables"


@dataclass(frozen=True)
class Exported:
    """An export, its trained output, and the signature to call, with inputs by name: type, and shape if it is known."""

    folder: str
    signature: str
    output: str
    inputs: Mapping[str, tuple[tf.DType, Optional[Sequence[Optional[int]]]]]
    serialized: bool
    trained: Sequence[str]
    methods: Mapping[str, str]


def read(folder: str, answer: str = "") -> Exported:
    """Reads the meta graph of an export."""
    graph = _meta_graph(folder)
    trained = list(_variables(graph))
    if not trained:
        raise _refused(f"{folder} lists no trained variable")
    signature, output = _answer(graph, answer)
    takes = graph.signature_def[signature].inputs
    inputs = {name: (tf.as_dtype(each.dtype), _shape(each.tensor_shape)) for name, each in takes.items()}
    serialized = _is_parsed(graph.graph_def, [*takes.values()])
    methods = {name: each.method_name for name, each in sorted(graph.signature_def.items())}
    # The signature of an initialisation op has no method.
    methods = {name: each for name, each in methods.items() if each not in ("", tf.saved_model.PREDICT_METHOD_NAME)}
    return Exported(folder, signature, output, inputs, serialized, trained, methods)


def _meta_graph(folder: str) -> meta_graph_pb2.MetaGraphDef:
    path = os.path.join(folder, FILE)
    try:
        with open(path, "rb") as file:
            graphs = saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs
    except (OSError, DecodeError) as error:
        raise _refused(
            f"{path} cannot be read: {one_line(str(error))}", "copy it again with all that is in it"
        ) from error
    found = [each for each in graphs if SERVE in each.meta_info_def.tags]
    if not found:
        raise _refused(f"{folder} has no graph tagged {SERVE}")
    if found[0].HasField("object_graph_def"):
        raise _refused(f"{folder} was saved by TensorFlow 2", "load it by tf.saved_model.load, or tf.keras.models")
    return found[0]


def _variables(graph: meta_graph_pb2.MetaGraphDef) -> Iterator[str]:
    for each in graph.collection_def[_TRAINED].bytes_list.value if _TRAINED in graph.collection_def else ():
        yield variable_pb2.VariableDef.FromString(each).variable_name.partition(":")[0]


def _answer(graph: meta_graph_pb2.MetaGraphDef, named: str) -> tuple[str, str]:
    """Chooses signature and output: the named ones; else by the output's name; else the only one."""
    signatures = graph.signature_def
    ordered = [*(name for name in _USUAL if name in signatures), *sorted(set(signatures) - set(_USUAL))]
    candidates = [
        (name, output)
        for name in ordered
        for output in sorted(signatures[name].outputs)
        if tf.as_dtype(signatures[name].outputs[output].dtype).is_floating
    ]
    # An Estimator serves a single output by two signatures.
    tensors = {signatures[name].outputs[output].name for name, output in candidates}
    wanted = [pair for pair in candidates if ":".join(pair) == named] if named else []
    if not named:
        wanted = [pair for key in _ANSWERS for pair in candidates if pair[1] == key]
        wanted = wanted or candidates[: len(tensors) == 1]
    if wanted:
        return wanted[0]
    raise UserCodeError(
        f"--answer: no signature has an output {one_line(named)}"
        if named
        else "which output of the export to train is ambiguous",
        expected=f"one of the float outputs: {', '.join(map(':'.join, candidates)) or 'there are none'}",
        todo="name it by --answer",
    )


def _is_parsed(graph: graph_pb2.GraphDef, takes: Sequence[meta_graph_pb2.TensorInfo]) -> bool:
    """True if a signature takes tf.Examples: a single string input, in a graph that parses some."""
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    is_text = len(takes) == 1 and tf.as_dtype(takes[0].dtype) == tf.string
    return is_text and any(_PARSING.match(node.op) for node in nodes)


def _shape(proto: Any) -> Optional[list[Optional[int]]]:
    return None if proto.unknown_rank else [None if each.size < 0 else int(each.size) for each in proto.dim]


def _refused(what: str, todo: str = "name the SavedModel of an Estimator's training") -> UserCodeError:
    return UserCodeError(what, expected="an export of an Estimator with variables that it trained", todo=todo)
