"""ParquetExampleGen: the rows of Parquet files -> tf.Examples."""

from __future__ import annotations

from tfx.components.example_gen.component import FileBasedExampleGen
from tfx.dsl.components.base import executor_spec

from tfx_estimator.components.parquet_example_gen import executor

__all__ = ["ParquetExampleGen"]


class ParquetExampleGen(FileBasedExampleGen):
    """TFX's FileBasedExampleGen with an executor that keeps zeros, which TFX's parquet_executor takes for missing.

        example_gen = ParquetExampleGen(input_base="data")

    Outputs: `examples`.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.Executor)
