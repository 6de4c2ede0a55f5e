"""TFX's launcher of one component, which takes nothing damaged from the cache, and begins with empty outputs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Optional

from tfx import types
from tfx.dsl.io import fileio
from tfx.orchestration.portable import cache_utils, data_types, launcher, outputs_utils
from tfx.proto.orchestration import execution_result_pb2

from tfx_estimator.components import inventory
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.runners.buckets import StoredMetadata

logger = get_logger("run")


class Launcher(launcher.Launcher):
    """TFX's, which also stores the number of an execution before there can be artifacts of it: a kill frees no number.

    Args:
        kept: The database, where it is kept in an object store.
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
        with inventory.checked_inputs(execution_info.input_dict):
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


def with_sorted_properties(get_cache_context: Callable[..., Any]) -> Callable[..., Any]:
    """Returns TFX's function, which then sees the properties of input artifacts sorted by name, as protobuf 3 has them.

    Args:
        get_cache_context: Of `tfx.orchestration.portable.cache_utils`.
    """

    def get(*, input_artifacts: Optional[Mapping[str, Sequence[types.Artifact]]] = None, **others: Any) -> Any:
        inputs = (input_artifacts or {}).items()
        told = {key: [_Sorted(artifact.mlmd_artifact) for artifact in channel] for key, channel in inputs}
        return get_cache_context(input_artifacts=told, **others)

    return get


class _Sorted:
    """In place of an artifact, and of its message, which is asked for its bytes alone."""

    def __init__(self, message: Any) -> None:
        self.mlmd_artifact = self
        self._message = message

    def SerializeToString(self, deterministic: bool) -> bytes:  # noqa: N802
        """See google.protobuf.message.Message: the bytes of a message are those of its fields, by their numbers."""
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
