"""Makes artifacts of TFX's standard types, and TFRecord files of tf.Examples."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any


def artifact(kind: str, uri: object = "", **properties: str | int) -> Any:
    """Makes an artifact of a standard type with custom properties."""
    from tfx.types import standard_artifacts

    result = getattr(standard_artifacts, kind)()
    result.uri = str(uri)
    for name, value in properties.items():
        (result.set_int_custom_property if isinstance(value, int) else result.set_string_custom_property)(name, value)
    return result


def outputs(folder: Path, execution: object = "", **kinds: str) -> dict[str, list[Any]]:
    """Makes the output artifacts of an execution; by default a Trainer's."""
    kinds = kinds or {"model": "Model", "model_run": "ModelRun"}
    return {name: [artifact(kind, Path(folder, name, str(execution)))] for name, kind in kinds.items()}


def example(**features: Any) -> bytes:
    """Returns a serialized tf.Example; features are bytes, ints or floats, or lists of them."""
    from tfx_estimator.pipeline.testing.serving import serialize

    return serialize([features])[0]


def write_records(path: object, records: Iterable[bytes]) -> str:
    """Writes a TFRecord file; returns its path."""
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return str(path)
