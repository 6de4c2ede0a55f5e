"""TFX's cache key, which does not depend on the version of protobuf.

TFX hashes the bytes of input artifacts. Of two properties' names, one of which begins with the other, as
`current_model` and `current_model_id` of a blessing, protobuf 3 writes the shorter one first, and its later versions
the longer one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Optional

from tfx import types


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
