"""Small artifacts of TFX's standard types, with files as TFX's components write them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.types import standard_artifacts
from tfx.types.value_artifact import ValueArtifact

from tfx_estimator.pipeline.testing.arrays import made_up
from tfx_estimator.pipeline.testing.folders import new_folder, temporary_in
from tfx_estimator.pipeline.testing.rows import Row, made_up_rows, schema_of, serialize

SPLITS = ("train", "eval")
_DATA = "data_tfrecord-00000-of-00001.gz"


def examples(
    of: Any,
    count: int = 32,
    classes: int = 10,
    splits: Sequence[str] = SPLITS,
) -> Any:
    """Makes an Examples artifact, as an ExampleGen writes it.

    Args:
        of: The shape of images; or a Schema, for made-up rows; or rows, as `preprocess` takes them.
        count: Number of made-up examples.
        classes: Number of classes of the images.
        splits: Names of the splits, each with all examples.

    Returns:
        The artifact. Images have the features `image`, its uint8 pixels as bytes, and `label`, int64.
    """
    if isinstance(of, schema_pb2.Schema):
        rows: Sequence[Row] = made_up_rows(of, count)
    elif of and isinstance(of[0], int):
        images, labels = made_up(of, classes, count)
        pixels = (next(iter(images.values())) * 255).astype("uint8")
        rows = [{"image": image.tobytes(), "label": int(label)} for image, label in zip(pixels, labels)]
    else:
        rows = of
    made = artifact("Examples")
    made.split_names = json.dumps(list(splits))
    for split in splits:
        folder = Path(made.uri, f"Split-{split}")
        folder.mkdir()
        with tf.io.TFRecordWriter(str(folder / _DATA), "GZIP") as writer:
            for record in serialize(rows):
                writer.write(record)
    return made


def artifact(kind: str, of: Any = None, **properties: Any) -> Any:
    """Makes an artifact of a standard type, in a folder of the test.

    Args:
        kind: Name of the type: `Schema`, `TransformGraph`, `Model`, …
        of: What it has. Of a Schema: the message, or rows. Of ExampleStatistics: an Examples artifact. Of a
            TransformGraph: the preprocessing_fn, rows and, if there are, schema and custom_config. Of a Model: the
            folder of a SavedModel. Of an Integer, a String and the like: the value. Of any: a folder, or texts or bytes
            by the names of files.
        properties: Custom properties.

    Returns:
        The artifact.
    """
    made = getattr(standard_artifacts, kind)()
    made.uri = new_folder(kind)
    if isinstance(made, ValueArtifact):
        made.uri = os.path.join(made.uri, "value")
        made.write(of)
        return made
    for name, value in properties.items():
        (made.set_int_custom_property if isinstance(value, int) else made.set_string_custom_property)(name, value)
    if kind == "Schema" and isinstance(of, (list, tuple)):
        of = schema_of(of)
    if isinstance(of, schema_pb2.Schema):
        of = {"schema.pbtxt": text_format.MessageToString(of)}
    if isinstance(of, standard_artifacts.Examples) and kind == "ExampleStatistics":
        _write_statistics(made, of)
    elif kind == "TransformGraph" and isinstance(of, tuple):
        from tfx_estimator.pipeline.testing.preprocessing import analyze

        shutil.copytree(analyze(*of), made.uri, dirs_exist_ok=True)
    elif isinstance(of, Mapping):
        for name, content in of.items():
            Path(made.uri, name).parent.mkdir(parents=True, exist_ok=True)
            Path(made.uri, name).write_bytes(content.encode() if isinstance(content, str) else content)
    elif of is not None:
        inside = "Format-Serving" if kind == "Model" and os.path.exists(os.path.join(of, "saved_model.pb")) else ""
        shutil.copytree(of, os.path.join(made.uri, inside), dirs_exist_ok=True)
    return made


def _write_statistics(made: Any, of: Any) -> None:
    """Writes the statistics of an Examples artifact, as StatisticsGen does."""
    import tensorflow_data_validation as tfdv

    made.split_names = of.split_names
    for split in json.loads(of.split_names):
        (file,) = Path(of.uri, f"Split-{split}").iterdir()
        with temporary_in(new_folder("statistics")):
            found = tfdv.generate_statistics_from_tfrecord(str(file))
        Path(made.uri, f"Split-{split}").mkdir()
        Path(made.uri, f"Split-{split}", "FeatureStats.pb").write_bytes(found.SerializeToString())
