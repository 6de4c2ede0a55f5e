"""TFX's launcher of one component, which takes nothing damaged from the cache, and begins with empty outputs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Optional

from tfx import types
from tfx.dsl.io import fileio
from tfx.orchestration.portable import cache_utils, data_types, launcher, outputs_utils
from tfx.proto.orchestration import execution_result_pb2

from tfx_estimator.components import inventory
from tfx_estimator.pipeline.log import get_logger
from tfx_estimator.pipeline.runners.cache_key import with_sorted_properties
from tfx_estimator.pipeline.runners.stored_metadata import StoredMetadata

logger = get_logger("run")


class Launcher(launcher.Launcher):
    """TFX's, which also stores the number of an execution before there can be artifacts of it: a kill frees no number.

    Args:
        kept: The database, where it is kept in an object store.
        options: TFX's.
    """

    def __init__(self, kept: Optional[StoredMetadata], **options: Any) -> None:
        super().__init__(**options)
        self._kept = kept

    def launch(self) -> Optional[data_types.ExecutionInfo]:
        """See `launcher.Launcher.launch`."""
        with (
            _verified(),
            _replaced(launcher.execution_watcher, "ExecutionWatcher", _NoWatcher),
            _replaced(cache_utils, "get_cache_context", with_sorted_properties(cache_utils.get_cache_context)),
        ):
            return super().launch()

    def _run_executor(self, execution_info: data_types.ExecutionInfo) -> execution_result_pb2.ExecutorOutput:
        if self._kept:
            self._kept.store()
        artifacts = [artifact for channel in execution_info.output_dict.values() for artifact in channel]
        for artifact in artifacts:
            # Without the database of ML Metadata the numbers of executions begin anew: another may have written here.
            if not artifact.is_external and fileio.exists(artifact.uri):
                outputs_utils.remove_output_dirs({"": [artifact]})
        with inventory.whole(execution_info.input_dict):
            output = super()._run_executor(execution_info)
        for key, channel in execution_info.output_dict.items():
            # What an executor says of its outputs is published in their place.
            said = output.output_artifacts[key].artifacts if key in output.output_artifacts else ()
            for made in said or [artifact.mlmd_artifact for artifact in channel]:
                inventory.note(made, channel[0].type_name)
        return output


@contextlib.contextmanager
def _verified() -> Iterator[None]:
    """Has TFX make anew what is damaged: it asks of the outputs of each earlier execution whether they are there."""
    verify, told = cache_utils.artifact_utils.verify_artifacts, set()

    def verify_files(artifacts: dict[str, list[types.Artifact]]) -> None:
        verify(artifacts)
        for artifact in (artifact for channel in artifacts.values() for artifact in channel):
            path, what = inventory.damage(artifact)
            if path:
                if path not in told:  # by an execution that took it from the cache itself
                    told.add(path)
                    logger.warning(f"{path}: {what}; this component runs again")
                raise RuntimeError(path)  # which is TFX's word for it

    with _replaced(cache_utils.artifact_utils, "verify_artifacts", verify_files):
        yield


class _NoWatcher:
    """In place of TFX's ExecutionWatcher: a server without a password that writes into ML Metadata.

    It is for executors of other machines, which tell of their progress; TFX itself has none that does.
    """

    address = ""

    def __init__(self, **options: Any) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)
