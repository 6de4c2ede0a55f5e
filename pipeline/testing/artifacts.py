"""Small artifacts of TFX's standard types, with files as TFX's components write them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.types import standard_artifacts
from tfx.types.value_artifact import ValueArtifact

from tfx_estimator.pipeline.testing import new_folder
from tfx_estimator.pipeline.testing.model_fns import make_batch
from tfx_estimator.pipeline.testing.serving import Row, kinds_of, serialize, values_of


def examples(of: Any, count: int = 32, classes: int = 10, splits: Sequence[str] = ("train", "eval")) -> Any:
    """Makes an Examples artifact, as an ExampleGen writes it.

    Args:
        of: The shape of images; or a Schema, for made-up rows; or rows, as `preprocess` takes them.
        count: Number of made-up examples.
        classes: Number of classes of the images.
        splits: Names of the splits, each with all examples.

    Returns:
        The artifact. Images have the features `image`, its uint8 pixels as bytes, and `label`, int64.
    """
    rows: Sequence[Row] = of
    if isinstance(of, schema_pb2.Schema):
        rows = _made_up(of, count)
    elif isinstance(of[0], int):
        images, labels = make_batch(shape=of, classes=classes, examples=count)
        pixels = (next(iter(images.values())) * 255).astype("uint8")
        rows = [{"image": image.tobytes(), "label": label} for image, label in zip(pixels, labels)]
    made = artifact("Examples", {f"Split-{split}/data_tfrecord-00000-of-00001.gz": "" for split in splits})
    made.split_names = json.dumps(list(splits))
    for file in Path(made.uri).glob("*/*"):
        with tf.io.TFRecordWriter(str(file), "GZIP") as writer:
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
    if isinstance(of, standard_artifacts.Examples):
        from tfx.components import StatisticsGen

        from tfx_estimator.pipeline.testing.components import run_component

        made = run_component(StatisticsGen, examples=of)["statistics"]
    elif kind == "TransformGraph" and isinstance(of, tuple):
        from tfx_estimator.pipeline.testing.preprocessing import analyze

        made = analyze(*of)
    elif isinstance(made, ValueArtifact):
        made.uri = os.path.join(made.uri, "value")
        made.write(of)
    elif isinstance(of, (str, os.PathLike)):
        inside = "Format-Serving" if kind == "Model" and os.path.exists(os.path.join(of, "saved_model.pb")) else ""
        shutil.copytree(of, os.path.join(made.uri, inside), dirs_exist_ok=True)
    elif of is not None:
        of = schema_of(of) if isinstance(of, (list, tuple)) else of
        files = of if isinstance(of, Mapping) else {"schema.pbtxt": text_format.MessageToString(of)}
        for name, content in files.items():
            Path(made.uri, name).parent.mkdir(parents=True, exist_ok=True)
            Path(made.uri, name).write_bytes(content.encode() if isinstance(content, str) else content)
    for name, value in properties.items():
        (made.set_int_custom_property if isinstance(value, int) else made.set_string_custom_property)(name, value)
    return made


def schema_of(rows: Sequence[Row]) -> schema_pb2.Schema:
    """Infers the schema of rows, as SchemaGen does: a feature with as many values in each row has a shape."""
    schema = schema_pb2.Schema()
    for name, (_, kind) in kinds_of(rows).items():
        feature = schema.feature.add(name=name, type=kind)
        counts = {len(values_of(row.get(name))) for row in rows}
        if len(counts) == 1:
            feature.presence.min_fraction = 1.0
            feature.shape.dim.add(size=counts.pop())
    return schema


def _made_up(schema: schema_pb2.Schema, count: int) -> list[dict[str, Any]]:
    """Makes rows of a schema: numbers of its domains, else from 0 to 9, and words of its domains, else `a` to `j`."""
    random = np.random.default_rng(1)
    words = {each.name: list(each.value) for each in schema.string_domain}

    def values(feature: Any) -> list[Any]:
        size = int(np.prod([dim.size for dim in feature.shape.dim], dtype=int))
        if feature.type == schema_pb2.BYTES:
            known = list(feature.string_domain.value) or words.get(feature.domain) or [*"abcdefghij"]
            return random.choice(known, size).tolist()
        domain = feature.int_domain if feature.type == schema_pb2.INT else feature.float_domain
        low, high = (domain.min, domain.max) if domain.max > domain.min else (0, 9)
        drawn = random.uniform(low, high, size)
        return (np.rint(drawn).astype(int) if feature.type == schema_pb2.INT else drawn).tolist()

    return [{each.name: values(each) for each in schema.feature} for _ in range(count)]
