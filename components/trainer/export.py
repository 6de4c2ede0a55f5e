"""Checks exported models for completeness, and copies them atomically."""

from __future__ import annotations

import os
from typing import Optional

from tensorflow.core.protobuf import saved_model_pb2
from tfx.dsl.io import fileio
from tfx.utils import io_utils, path_utils

from tfx_estimator.components.files import copy_stored, write_whole
from tfx_estimator.components.served_outputs import read_graphs
from tfx_estimator.pipeline.base.errors import ExportError
from tfx_estimator.pipeline.config.paths import is_address

# Suffix of an incomplete copy.
DRAFT = ".tmp"
_DEFAULT = "serving_default"
# An Estimator's head has its default signature for serialized examples only, and `predict` for any other input.
_ALTERNATIVES = (f":{_DEFAULT}", ":predict")


def adopt(saved_model: str, target: str) -> None:
    """Copies a SavedModel atomically."""
    if is_address(target):
        # `copy_stored` copies `saved_model.pb`, which marks a complete model, last.
        if fileio.exists(target):
            fileio.rmtree(target)
        copy_stored(saved_model, target)
        return
    temporary = target + DRAFT
    for folder in (temporary, target):
        if fileio.exists(folder):
            fileio.rmtree(folder)
    fileio.makedirs(os.path.dirname(target))
    io_utils.copy_dir(saved_model, temporary)
    fileio.rename(temporary, target)


def newest_version(*folders: str) -> Optional[str]:
    """Returns the newest SavedModel of an Estimator's exporters, each in a folder named by its time, if any."""
    versions = [path for folder in folders for path in paths_in(folder) if os.path.basename(path).isdigit()]
    return max(versions, key=lambda path: int(os.path.basename(path)), default=None)


def paths_in(folder: str) -> list[str]:
    """Lists the paths in a folder; empty if it does not exist."""
    names = fileio.listdir(folder) if fileio.exists(folder) else []
    return [os.path.join(folder, name.rstrip("/")) for name in names]


def rename_signatures(saved_model: str) -> None:
    """Renames the signatures of alternative inputs, such as an Estimator's `images:serving_default` to `images`."""
    path = os.path.join(saved_model, "saved_model.pb")
    proto = saved_model_pb2.SavedModel()
    with fileio.open(path, "rb") as file:
        proto.ParseFromString(file.read())
    for meta_graph in proto.meta_graphs:
        signatures = meta_graph.signature_def
        for suffix in _ALTERNATIVES:
            for name in [name for name in signatures if name.endswith(suffix)]:
                plain = name.removesuffix(suffix)
                if plain not in signatures:
                    signatures[plain].CopyFrom(signatures[name])
                    del signatures[name]
    write_whole(path, proto.SerializeToString(deterministic=True))


def check(saved_model: str) -> list[str]:
    """Checks that a SavedModel exists and is complete.

    Returns:
        Names of the outputs of `serving_default`, sorted.
    """
    todo = "a `trainer_fn` needs an exporter in its EvalSpec, a `run_fn` must save to serving_model_dir; see the log"
    path = os.path.join(saved_model, "saved_model.pb")
    if not fileio.exists(path):
        raise ExportError(f"training ended without a model: no {path}", expected="a SavedModel", todo=todo)
    try:
        graphs = read_graphs(saved_model)
    except Exception as error:
        raise ExportError(f"{path} is damaged: {error}", expected="a SavedModel", todo=todo) from error
    if not any(meta_graph.signature_def for meta_graph in graphs):
        raise ExportError(f"{path} has no signature", expected="at least `serving_default`", todo=todo)
    index = os.path.join(saved_model, "variables", "variables.index")
    data = fileio.glob(os.path.join(saved_model, "variables", "variables.data-*"))
    if fileio.exists(os.path.dirname(index)) and not (fileio.exists(index) and data):
        raise ExportError(f"{saved_model} lacks its variables", expected=f"{index} and its data files", todo=todo)
    return sorted({name for meta_graph in graphs for name in meta_graph.signature_def[_DEFAULT].outputs})


def publish(exports: str, model_uri: str) -> list[str]:
    """Moves a training's exports, in the job's `exports_dir`, into the model artifact.

    Returns:
        Names of the outputs of `serving_default`, sorted.
    """
    outputs = check(path_utils.serving_model_dir(exports))
    fileio.makedirs(model_uri)
    for locate in (path_utils.serving_model_dir, path_utils.eval_model_dir):
        if fileio.exists(locate(exports)):
            adopt(locate(exports), locate(model_uri))
    fileio.rmtree(exports)
    return outputs
