"""The executor of ParquetExampleGen."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import apache_beam as beam
import pyarrow_hotfix  # noqa: F401  # without it, pyarrow runs code in a Parquet file (CVE-2023-47248)
import tensorflow as tf
from tfx.components.example_gen.base_example_gen_executor import BaseExampleGenExecutor
from tfx.types import standard_component_specs


class Executor(BaseExampleGenExecutor):
    """Reads the files of a split, row by row."""

    def GetInputSourceToExamplePTransform(self) -> beam.PTransform:  # noqa: N802
        """Returns the transform that reads them."""
        return _read


@beam.ptransform_fn
@beam.typehints.with_input_types(beam.Pipeline)
@beam.typehints.with_output_types(tf.train.Example)
def _read(pipeline: beam.Pipeline, exec_properties: Mapping[str, Any], split_pattern: str) -> beam.pvalue.PCollection:
    pattern = os.path.join(exec_properties[standard_component_specs.INPUT_BASE_KEY], split_pattern)
    return pipeline | "Read" >> beam.io.ReadFromParquet(pattern) | "ToTFExample" >> beam.Map(to_example)


def to_example(row: Mapping[str, Any]) -> tf.train.Example:
    """Returns a row as a tf.Example; a null or an empty string is a feature without a value.

    TFX's own `dict_to_example` makes the same of 0, 0.0 and False.
    """
    features = {name: _to_feature(value if isinstance(value, list) else [value]) for name, value in row.items()}
    return tf.train.Example(features=tf.train.Features(feature=features))


def _to_feature(values: list[Any]) -> tf.train.Feature:
    given = [each for each in values if each is not None and each not in ("", b"")]
    if not given:
        return tf.train.Feature()
    if isinstance(given[0], (str, bytes)):
        texts = [each.encode() if isinstance(each, str) else each for each in given]
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=texts))
    if isinstance(given[0], int):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=map(int, given)))
    return tf.train.Feature(float_list=tf.train.FloatList(value=map(float, given)))
