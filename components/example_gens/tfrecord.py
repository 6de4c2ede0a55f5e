"""The executor of ImportExampleGen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError
from tfx.components.example_gen.import_example_gen import executor
from tfx.proto import example_gen_pb2
from tfx.types import standard_component_specs

from tfx_estimator.components.example_gens import streaming
from tfx_estimator.components.execution import Artifacts
from tfx_estimator.components.records import read_records
from tfx_estimator.pipeline.base.errors import DamagedDataError


class Executor(streaming.Executor, executor.Executor):
    """Copies tf.Examples; records of another kind are left to TFX."""

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
        """Writes the Examples artifact."""
        payload = exec_properties.get(standard_component_specs.OUTPUT_DATA_FORMAT_KEY)
        is_example = payload == example_gen_pb2.FORMAT_TF_EXAMPLE
        do = super().Do if is_example else super(streaming.Executor, self).Do
        do(input_dict, output_dict, exec_properties)

    def examples(self, paths: Sequence[str]) -> Iterator[tf.train.Example]:
        """Yields a record after another; that a file is gzipped, its name tells.

        Raises:
            DamagedDataError: A file is damaged, or a record is no tf.Example.
        """
        for path in paths:
            for number, record in enumerate(read_records(path, "GZIP" if path.endswith(".gz") else "")):
                try:
                    yield tf.train.Example.FromString(record)
                except DecodeError as error:
                    raise DamagedDataError(
                        f"record {number:,} of {path} is no tf.Example", expected="one", todo="write the file again"
                    ) from error
