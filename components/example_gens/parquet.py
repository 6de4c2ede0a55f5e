"""The executor of ParquetExampleGen."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow_hotfix  # noqa: F401  # without it, pyarrow runs code in a Parquet file (CVE-2023-47248)
import tensorflow as tf
from apache_beam.io.filesystems import FileSystems
from pyarrow import parquet
from tfx.types import standard_component_specs

from tfx_estimator.components.example_gens import streaming
from tfx_estimator.pipeline.base.errors import DamagedDataError

# Rows that are held in memory.
_BATCH = 1_000


class Executor(streaming.Executor):
    """Reads the files of a split, row by row."""

    def examples(self, paths: Sequence[str]) -> Iterator[tf.train.Example]:
        """Yields a row after another.

        Raises:
            DamagedDataError: A file is damaged.
        """
        for path in paths:
            try:
                with FileSystems.open(path) as file:  # as ReadFromParquet does
                    for batch in parquet.ParquetFile(file).iter_batches(_BATCH):
                        yield from map(to_example, batch.to_pylist())
            except (pa.ArrowException, OSError, ValueError) as error:
                raise DamagedDataError(
                    f"damaged file {path}: {error}", expected="a whole Parquet file", todo="write the file again"
                ) from error

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
