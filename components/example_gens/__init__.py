"""CsvExampleGen, ParquetExampleGen, ImportExampleGen: the rows of a table's files -> tf.Examples."""

from __future__ import annotations

from tfx import components
from tfx.components.example_gen.component import FileBasedExampleGen
from tfx.dsl.components.base import executor_spec

from tfx_estimator.components.example_gens import csv, parquet, tfrecord

__all__ = ["CsvExampleGen", "ImportExampleGen", "ParquetExampleGen"]


class CsvExampleGen(components.CsvExampleGen):
    """TFX's CsvExampleGen, which on this machine holds one row in memory, and names a wrong row's file and line.

        example_gen = CsvExampleGen(input_base="data")

    Arguments and outputs are those of `tfx.components.CsvExampleGen`.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(csv.Executor)


class ParquetExampleGen(FileBasedExampleGen):
    """TFX's FileBasedExampleGen with an executor that keeps zeros, which TFX's parquet_executor takes for missing.

        example_gen = ParquetExampleGen(input_base="data")

    Outputs: `examples`.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(parquet.Executor)


class ImportExampleGen(components.ImportExampleGen):
    """TFX's ImportExampleGen of tf.Examples, which on this machine holds one in memory.

        example_gen = ImportExampleGen(input_base="data")

    Arguments and outputs are those of `tfx.components.ImportExampleGen`.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(tfrecord.Executor)
