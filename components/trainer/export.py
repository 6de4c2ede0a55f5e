"""What training exports: checked to be whole, and never half there."""

from __future__ import annotations

import os
from typing import Optional

from tensorflow.core.protobuf import saved_model_pb2
from tfx.dsl.io import fileio
from tfx.utils import io_utils, path_utils

from tfx_estimator.components.files import copy_stored, write_whole
from tfx_estimator.pipeline.base.errors import ExportError
from tfx_estimator.pipeline.config.paths import is_address

# How a copy is called until all of it is there.
DRAFT = ".tmp"
_DEFAULT = "serving_default"
# An Estimator's head answers serialized examples alone by its default signature, and any other input by `predict`.
_ALTERNATIVES = (f":{_DEFAULT}", ":predict")


def adopt(saved_model: str, target: str) -> None:
    """Copies a SavedModel to where it belongs; the target is there whole or not at all."""
    if is_address(target):
        # A model is there when its `saved_model.pb` is.
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
    """Finds the newest of the SavedModels of an Estimator's exporters, each in a folder of its time, or None."""
    versions = [path for folder in folders for path in paths_in(folder) if os.path.basename(path).isdigit()]
    return max(versions, key=lambda path: int(os.path.basename(path)), default=None)


def paths_in(folder: str) -> list[str]:
    """Lists what a folder holds; nothing if it is not there."""
    names = fileio.listdir(folder) if fileio.exists(folder) else []
    return [os.path.join(folder, name.rstrip("/")) for name in names]


def rename_signatures(saved_model: str) -> None:
    """Gives the alternative inputs' signatures the plain names of their inputs.

    An Estimator names them `images:serving_default`; a client asks for `images`.
    """
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
    """Checks that a SavedModel is there and whole.

    Returns:
        Names of the outputs of `serving_default`, sorted.
    """
    todo = "a `trainer_fn` needs an exporter in its EvalSpec, a `run_fn` must save to serving_model_dir; see the log"
    path = os.path.join(saved_model, "saved_model.pb")
    if not fileio.exists(path):
        raise ExportError(f"training ended without a model: no {path}", expected="a SavedModel", todo=todo)
    proto = saved_model_pb2.SavedModel()
    try:
        with fileio.open(path, "rb") as file:
            proto.ParseFromString(file.read())
    except Exception as error:
        raise ExportError(f"{path} is damaged: {error}", expected="a SavedModel", todo=todo) from error
    if not any(meta_graph.signature_def for meta_graph in proto.meta_graphs):
        raise ExportError(f"{path} has no signature", expected="at least `serving_default`", todo=todo)
    index = os.path.join(saved_model, "variables", "variables.index")
    data = fileio.glob(os.path.join(saved_model, "variables", "variables.data-*"))
    if fileio.exists(os.path.dirname(index)) and not (fileio.exists(index) and data):
        raise ExportError(f"{saved_model} lacks its variables", expected=f"{index} and its data files", todo=todo)
    return sorted({name for meta_graph in proto.meta_graphs for name in meta_graph.signature_def[_DEFAULT].outputs})


def publish(exports: str, model_uri: str) -> list[str]:
    """Moves what a training exported into the model artifact.

    Args:
        exports: The job's `exports_dir`.

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
