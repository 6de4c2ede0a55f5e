"""TFX's launcher of one component, with verified cache entries and emptied output folders."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Optional

from tfx import types
from tfx.dsl.io import fileio
from tfx.orchestration.portable import cache_utils, data_types, launcher, outputs_utils
from tfx.proto.orchestration import execution_result_pb2

from tfx_estimator.components import inventory, read_files
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.runners.buckets import StoredMetadata

logger = get_logger("run")


class Launcher(launcher.Launcher):
    """TFX's launcher, which also stores an execution's ID before its artifacts: a killed run's ID is not reused.

    Args:
        stored: The database, if it is kept in an object store.
    """

    def __init__(self, stored: Optional[StoredMetadata], **options: Any) -> None:
        super().__init__(**options)
        self._stored = stored

    def launch(self) -> Optional[data_types.ExecutionInfo]:
        """See `launcher.Launcher.launch`."""
        with (
            _verified(),
            _replaced(launcher.execution_watcher, "ExecutionWatcher", _NoWatcher),
            _replaced(cache_utils, "get_cache_context", with_sorted_properties(cache_utils.get_cache_context)),
        ):
            return super().launch()

    def _run_executor(self, execution_info: data_types.ExecutionInfo) -> execution_result_pb2.ExecutorOutput:
        if self._stored:
            self._stored.store()
        artifacts = [artifact for channel in execution_info.output_dict.values() for artifact in channel]
        for artifact in artifacts:
            # If the database was lost, IDs of executions restart, and another one may have written here.
            if not artifact.is_external and fileio.exists(artifact.uri):
                outputs_utils.remove_output_dirs({"": [artifact]})
        with inventory.checked_inputs(execution_info.input_dict):
            output = super()._run_executor(execution_info)
        for key, channel in execution_info.output_dict.items():
            # Artifacts that the executor reports are published in place of the channel's.
            reported = output.output_artifacts[key].artifacts if key in output.output_artifacts else ()
            for made in reported or [artifact.mlmd_artifact for artifact in channel]:
                inventory.note(made, channel[0].type_name)
        return output


@contextlib.contextmanager
def _verified() -> Iterator[None]:
    """Makes TFX recreate outputs that are damaged, or whose code read what has changed; TFX checks that they exist."""
    verify, logged = cache_utils.artifact_utils.verify_artifacts, set()

    def verify_files(artifacts: dict[str, list[types.Artifact]]) -> None:
        verify(artifacts)
        for artifact in (artifact for channel in artifacts.values() for artifact in channel):
            if changed := read_files.changes_of(artifact):
                raise RuntimeError(changed[0])  # as TFX's own error for missing artifacts
            path, what = inventory.damage(artifact)
            if path:
                if path not in logged:  # a cached execution has the same path
                    logged.add(path)
                    logger.warning(f"{path}: {what}; this component runs again")
                raise RuntimeError(path)

    with _replaced(cache_utils.artifact_utils, "verify_artifacts", verify_files):
        yield


class _NoWatcher:
    """Replaces TFX's ExecutionWatcher, an unauthenticated server that writes into ML Metadata.

    It receives the progress of executors on other machines; TFX itself has no such executor.
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


def with_sorted_properties(get_cache_context: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps TFX's function with input artifacts whose properties are sorted by name, as in protobuf 3.

    Args:
        get_cache_context: Of `tfx.orchestration.portable.cache_utils`.
    """

    def get(*, input_artifacts: Optional[Mapping[str, Sequence[types.Artifact]]] = None, **others: Any) -> Any:
        inputs = (input_artifacts or {}).items()
        artifacts = {key: [_Sorted(artifact.mlmd_artifact) for artifact in channel] for key, channel in inputs}
        return get_cache_context(input_artifacts=artifacts, **others)

    return get


class _Sorted:
    """Replaces an artifact and its message, of which only the bytes are used."""

    def __init__(self, message: Any) -> None:
        self.mlmd_artifact = self
        self._message = message

    def SerializeToString(self, deterministic: bool) -> bytes:  # noqa: N802
        """See google.protobuf.message.Message: a message's bytes are those of its fields in order of their numbers."""
        return b"".join(part.SerializeToString(deterministic=deterministic) for part in self._parts())

    def _parts(self) -> Iterator[Any]:
        for field, value in self._message.ListFields():
            is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
            for name in sorted(value) if is_map else [None]:
                part = type(self._message)()
                if is_map:
                    getattr(part, field.name)[name].CopyFrom(value[name])
                elif field.message_type is not None:
                    getattr(part, field.name).CopyFrom(value)
                else:
                    setattr(part, field.name, value)
                yield part
