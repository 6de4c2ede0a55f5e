"""The executor of Pusher."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf
from tfx import types
from tfx.components.pusher import executor as tfx_executor
from tfx.proto import pusher_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import io_utils, proto_utils

from tfx_estimator.components.execution import Artifacts
from tfx_estimator.components.pusher import local_folder, object_store
from tfx_estimator.components.pusher.object_store import StoredTree
from tfx_estimator.components.pusher.versions import LocalTree, Tree
from tfx_estimator.components.pusher.warm_up import write_requests
from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.config.paths import is_address


class Executor(tfx_executor.Executor):
    """Pushes a blessed model atomically."""

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
        """Pushes.

        Args:
            exec_properties: `push_destination`, as of `tfx.components.Pusher`; or the folder alone, as the value of a
                RuntimeParameter.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        pushed = artifact_utils.get_single_instance(output_dict[standard_component_specs.PUSHED_MODEL_KEY])
        if not self.CheckBlessing(input_dict):
            self._MarkNotPushed(pushed)
            return
        base = _destination(exec_properties)
        model = _tree(self.GetModelPath(input_dict))
        if not model.sizes():
            raise PipelineError(
                f"there is no model to push in {model.folder}", expected="a SavedModel", todo="run the Trainer again"
            )
        # First the artifact's copy, with the warm-up requests: nothing may fail once the version exists.
        try:
            io_utils.copy_dir(model.folder, pushed.uri)
            if examples := input_dict.get(standard_component_specs.EXAMPLES_KEY):
                write_requests(pushed.uri, _evaluated(artifact_utils.get_single_instance(examples)))
                model = _tree(pushed.uri)
            version = (object_store if is_address(base) else local_folder).push(model, base)
        except (OSError, tf.errors.OpError) as error:
            size = sum(model.sizes().values())
            raise PipelineError(
                f"the model cannot be pushed to {base}: {error}",
                expected=f"a writable destination, with room for {size:,} bytes, or twice that next to the artifacts",
                todo="make room there, or name another destination, and run it again; no partial model is left there",
            ) from error
        self._MarkPushed(pushed, pushed_destination=os.path.join(base, version), pushed_version=version)


def is_supported(destination: pusher_pb2.PushDestination) -> bool:
    """Returns True for a folder with versions by timestamp."""
    known = (pusher_pb2.Versioning.AUTO, pusher_pb2.Versioning.UNIX_TIMESTAMP)
    return bool(destination.filesystem.base_directory) and destination.filesystem.versioning in known


def _destination(exec_properties: dict[str, Any]) -> str:
    """Returns the folder of the versions."""
    text = exec_properties[standard_component_specs.PUSH_DESTINATION_KEY]
    if is_address(text) or os.path.isabs(text):
        return text
    destination = pusher_pb2.PushDestination()
    proto_utils.json_to_proto(text, destination)
    if not is_supported(destination):
        raise PipelineError(
            f"Pusher cannot push to the push_destination {str(destination).strip()!r}",
            expected="filesystem.base_directory, and versions by timestamp",
            todo="correct push_destination, or give the Pusher an executor of your own",
        )
    return destination.filesystem.base_directory


def _evaluated(examples: types.Artifact) -> str:
    """Returns the folder of a split that was not trained on, if there is one."""
    splits = artifact_utils.decode_split_names(examples.split_names)
    return artifact_utils.get_split_uri([examples], next((each for each in splits if each != "train"), splits[0]))


def _tree(folder: str) -> Tree:
    return StoredTree(folder) if is_address(folder) else LocalTree(folder)
