"""A Trainer's input artifacts, made of examples that nobody ingested: random images of the data set's shape."""

from __future__ import annotations

import functools
import inspect
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam
from apache_beam import Create, Pipeline
from google.protobuf import text_format
from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils
from tfx.components.util import udf_utils
from tfx.types import Artifact, standard_artifacts

from tfx_estimator.components.image_schema_gen.executor import SCHEMA_FILE, image_schema
from tfx_estimator.data.features import IMAGE, LABEL
from tfx_estimator.data.sources import SourceInfo
from tfx_estimator.pipeline.config.data import TransformSection
from tfx_estimator.pipeline.user_source import loader

_SPLITS = ("train", "eval")
_MOST_BYTES = 64 << 20
_SEED = 1
_OPTIONS = ["--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner"]


def make_inputs(folder: str, info: SourceInfo, transform: TransformSection, examples: int) -> dict[str, list[Artifact]]:
    """Writes what a Trainer reads: examples, their schema, and the graph of the declared preprocessing_fn."""
    count = max(min(examples, _MOST_BYTES // info.image_bytes), 1)
    random = np.random.default_rng(_SEED)
    raw = [{IMAGE: random.bytes(info.image_bytes), LABEL: number % info.num_classes} for number in range(count)]
    for split in _SPLITS:
        _write(os.path.join(folder, "examples", f"Split-{split}"), raw)
    schema = image_schema(info.num_classes)
    os.makedirs(os.path.join(folder, "schema"))
    with open(os.path.join(folder, "schema", SCHEMA_FILE), "w", encoding="utf-8") as file:
        file.write(text_format.MessageToString(schema))
    spec = schema_utils.schema_as_feature_spec(schema).feature_spec
    metadata = dataset_metadata.DatasetMetadata.from_feature_spec(spec)
    graph = os.path.join(folder, "transform_graph")
    preprocessing_fn = _preprocessing_fn(transform, info)
    with Pipeline(argv=_OPTIONS) as pipeline, tft_beam.Context(temp_dir=os.path.join(folder, "tmp")):
        analyzed = (pipeline | Create(raw), metadata) | tft_beam.AnalyzeDataset(preprocessing_fn)
        _ = analyzed | tft_beam.WriteTransformFn(graph)
        _ = metadata | tft_beam.WriteMetadata(os.path.join(graph, tft.TFTransformOutput.RAW_METADATA_DIR), pipeline)
    artifacts: dict[str, Artifact] = {
        "examples": standard_artifacts.Examples(),
        "schema": standard_artifacts.Schema(),
        "transform_graph": standard_artifacts.TransformGraph(),
    }
    for name, artifact in artifacts.items():
        artifact.uri = os.path.join(folder, name)
    artifacts["examples"].split_names = json.dumps(_SPLITS)
    return {name: [artifact] for name, artifact in artifacts.items()}


def _write(folder: str, raw: list[dict[str, Any]]) -> None:
    os.makedirs(folder)
    with tf.io.TFRecordWriter(os.path.join(folder, "data_tfrecord-00000-of-00001")) as writer:
        for each in raw:
            example = tf.train.Example()
            example.features.feature[IMAGE].bytes_list.value.append(each[IMAGE])
            example.features.feature[LABEL].int64_list.value.append(each[LABEL])
            writer.write(example.SerializeToString())


def _preprocessing_fn(transform: TransformSection, info: SourceInfo) -> Callable[..., Any]:
    """The declared function, called as TFX's Transform does."""
    name = "preprocessing_fn"
    if transform.module_file:
        function = udf_utils.get_fn({"module_path": Path(transform.module_file).stem}, name)
    else:
        function = udf_utils.get_fn({name: loader.import_name(transform.target.replace(":", "."))}, name)
    if "custom_config" in inspect.signature(function).parameters:
        return functools.partial(function, custom_config={"image_shape": list(info.image_shape)})
    return function
