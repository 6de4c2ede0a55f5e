"""A Trainer's inputs for a dry run: examples, their schema, and the Transform graph."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.data.features import IMAGE, LABEL
from tfx_estimator.data.sources.source import SourceInfo
from tfx_estimator.model_fn.bridge.tf1 import shown
from tfx_estimator.pipeline.config.beam import IN_PROCESS
from tfx_estimator.pipeline.config.data import DataSection, TransformSection
from tfx_estimator.pipeline.config.table import read_declared
from tfx_estimator.pipeline.user_data.table import first_rows
from tfx_estimator.pipeline.user_data.table_file import Cell
from tfx_estimator.pipeline.user_source import loader
from tfx_estimator.pipeline.user_source.frames import is_users_module

# Limit of made-up images, and their seed.
_MOST_BYTES, _SEED = 64 << 20, 1
_SPLITS = ("train", "eval")
_OPTIONS = [f"--runner={IN_PROCESS}"]
# The raw examples' folder, and that of the preprocessed ones.
RAW, _TRANSFORMED = "examples", "transformed_examples"


def make_inputs(folder: str, info: SourceInfo, transform: TransformSection, examples: int) -> dict[str, Any]:
    """Writes a Trainer's inputs: random images of the data set's shape, their schema, and the Transform graph."""
    from tfx_estimator.components.image_schema_gen.executor import image_schema

    count = max(min(examples, _MOST_BYTES // info.image_bytes), 1)
    random = np.random.default_rng(_SEED)
    raw = [{IMAGE: [random.bytes(info.image_bytes)], LABEL: [number % info.num_classes]} for number in range(count)]
    config = {"image_shape": list(info.image_shape)}
    return write_inputs(folder, raw, image_schema(info.num_classes), _declared(transform), config, transform.tf1)


def make_table_inputs(
    folder: str, data: DataSection, transform: TransformSection, examples: int, task: dict[str, Any]
) -> dict[str, Any]:
    """Writes a Trainer's inputs: the first rows, preprocessed, their schema, and the Transform graph.

    Args:
        task: The fields of the table's `Task`.
    """
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tensorflow_transform.tf_metadata import schema_utils

    reading = read_declared(data)
    if data.schema:
        schema = text_format.Parse(Path(data.schema).read_text(encoding="utf-8"), schema_pb2.Schema())
    else:
        # As SchemaGen does, a column without values is one of words.
        types = {"": schema_pb2.BYTES, "int": schema_pb2.INT, "float": schema_pb2.FLOAT, "bytes": schema_pb2.BYTES}
        features = [schema_pb2.Feature(name=each.name, type=types[each.kind]) for each in reading.columns]
        schema = schema_pb2.Schema(feature=features)
    spec = schema_utils.schema_as_feature_spec(schema).feature_spec
    rows = first_rows(reading, examples)
    raw = [{name: _values(row.get(name), each.dtype) for name, each in spec.items()} for row in rows]
    return write_inputs(folder, raw, schema, _declared(transform), task, transform.tf1, is_table=True)


def _values(cell: Optional[Cell], dtype: tf.DType) -> list[Any]:
    """Returns a cell as a raw feature's values; an empty one is missing."""
    cells = cell if isinstance(cell, tuple) else [cell] if cell else []
    kinds: dict[Any, Callable[[str], Any]] = {tf.int64: int, tf.float32: float, tf.string: str.encode}
    return [kinds[dtype](each) for each in cells]


def write_inputs(
    folder: str,
    rows: list[dict[str, Any]],
    schema: Any,
    preprocessing_fn: Callable[..., Any],
    config: Mapping[str, Any],
    tf1: bool = False,
    is_table: bool = False,
) -> dict[str, Any]:
    """Writes the artifacts; of a table the transformed examples, as the Trainer's, and the raw ones for evaluation.

    Args:
        rows: Lists of the values of each feature, by name.
        config: The custom_config.
        tf1: The preprocessing_fn is written for TensorFlow 1.
    """
    import tensorflow_transform as tft
    import tensorflow_transform.beam as tft_beam
    from apache_beam import Create, Map, Pipeline
    from apache_beam.io import WriteToTFRecord
    from google.protobuf import text_format
    from tensorflow_transform.coders import example_proto_coder
    from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils
    from tfx.types import standard_artifacts

    from tfx_estimator.components.image_schema_gen.executor import SCHEMA_FILE

    spec = schema_utils.schema_as_feature_spec(schema).feature_spec
    metadata = dataset_metadata.DatasetMetadata.from_feature_spec(spec)
    scalars = [name for name, each in spec.items() if isinstance(each, tf.io.FixedLenFeature) and not each.shape]
    raw = [{**row, **{name: next(iter(row[name]), None) for name in scalars}} for row in rows]
    for split in _SPLITS:
        _write(os.path.join(folder, RAW, f"Split-{split}"), metadata.schema, raw)
    os.makedirs(os.path.join(folder, "schema"))
    Path(folder, "schema", SCHEMA_FILE).write_text(text_format.MessageToString(schema), encoding="utf-8")
    graph = os.path.join(folder, "transform_graph")
    if "custom_config" in inspect.signature(preprocessing_fn).parameters:
        preprocessing_fn = functools.partial(preprocessing_fn, custom_config=dict(config))
    # Not to the Trainer's code, which the same process runs.
    face = shown(is_users_module) if tf1 else contextlib.nullcontext()
    with face, Pipeline(argv=_OPTIONS) as pipeline, tft_beam.Context(temp_dir=os.path.join(folder, "tmp")):
        analyzed = (pipeline | Create(raw), metadata) | tft_beam.AnalyzeDataset(preprocessing_fn)
        _ = analyzed | tft_beam.WriteTransformFn(graph)
        for split in _SPLITS if is_table else ():
            transformed, described = ((pipeline | f"rows of {split}" >> Create(raw), metadata), analyzed) | (
                f"preprocess {split}" >> tft_beam.TransformDataset()
            )
            encoded = transformed | f"encode {split}" >> Map(
                example_proto_coder.ExampleProtoCoder(described.schema).encode
            )
            place = os.path.join(folder, _TRANSFORMED, f"Split-{split}", "data_tfrecord")
            _ = encoded | f"write {split}" >> WriteToTFRecord(place, num_shards=1)
        _ = metadata | tft_beam.WriteMetadata(os.path.join(graph, tft.TFTransformOutput.RAW_METADATA_DIR), pipeline)
    artifacts: dict[str, Any] = {
        "examples": standard_artifacts.Examples(),
        "schema": standard_artifacts.Schema(),
        "transform_graph": standard_artifacts.TransformGraph(),
    }
    for name, artifact in artifacts.items():
        artifact.uri = os.path.join(folder, _TRANSFORMED if is_table and name == "examples" else name)
    artifacts["examples"].split_names = json.dumps(_SPLITS)
    return {name: [artifact] for name, artifact in artifacts.items()}


def _write(folder: str, schema: Any, raw: list[dict[str, Any]]) -> None:
    from tensorflow_transform.coders import example_proto_coder

    encode = example_proto_coder.ExampleProtoCoder(schema).encode
    os.makedirs(folder)
    with tf.io.TFRecordWriter(os.path.join(folder, "data_tfrecord-00000-of-00001")) as writer:
        for each in raw:
            writer.write(encode(each))


def _declared(transform: TransformSection) -> Callable[..., Any]:
    """Returns the declared preprocessing_fn, found as TFX's Transform does."""
    from tfx.components.util import udf_utils

    name = "preprocessing_fn"
    if transform.module_file:
        return udf_utils.get_fn({"module_path": Path(transform.module_file).stem}, name)
    return udf_utils.get_fn({name: loader.import_name(transform.target.replace(":", "."))}, name)


def read_raw(folder: str) -> list[bytes]:
    """Returns the raw examples that were written, serialized."""
    files = tf.io.gfile.glob(os.path.join(folder, RAW, "Split-train", "*"))
    return list(tf.data.TFRecordDataset(files).as_numpy_iterator())
