"""An ExampleGen's executor that, on this machine, reads and writes one row after another.

Beam in this process holds all rows in memory between two stages, and takes four times as long for each.
"""

from __future__ import annotations

import abc
import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any, Union

import tensorflow as tf
from apache_beam.io.filesystems import FileSystems
from tfx.components.example_gen import base_example_gen_executor, utils, write_split
from tfx.components.util import examples_utils
from tfx.dsl.io import fileio
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import proto_utils

from tfx_estimator.components.execution import Artifacts
from tfx_estimator.pipeline.base.errors import DataError, DataNotFoundError
from tfx_estimator.pipeline.config.beam import IN_PROCESS

# Other steps read files side by side.
_FILE_BYTES = 256 << 20


class Executor(base_example_gen_executor.BaseExampleGenExecutor):
    """Comes before TFX's executor, which other engines of Beam run."""

    @abc.abstractmethod
    def examples(self, paths: Sequence[str]) -> Iterator[tf.train.Example]:
        """Yields the rows of a split's files; an example may change with the next one."""

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
        """Writes the Examples artifact."""
        if f"--runner={IN_PROCESS}" not in (self._beam_pipeline_args or ()):
            super().Do(input_dict, output_dict, exec_properties)
            return
        self._log_startup(input_dict, output_dict, exec_properties)
        read, written = example_gen_pb2.Input(), example_gen_pb2.Output()
        proto_utils.json_to_proto(exec_properties[standard_component_specs.INPUT_CONFIG_KEY], read)
        proto_utils.json_to_proto(exec_properties[standard_component_specs.OUTPUT_CONFIG_KEY], written)
        artifacts = output_dict[standard_component_specs.EXAMPLES_KEY]
        artifact = artifact_utils.get_single_instance(artifacts)
        names = utils.generate_output_split_names(read, written)
        artifact.split_names = artifact_utils.encode_split_names(names)
        folders = [artifact_utils.get_split_uri(artifacts, name) for name in names]
        base = exec_properties[standard_component_specs.INPUT_BASE_KEY]
        if written.split_config.splits:
            (split,) = read.splits
            self._write(_files(base, split.pattern), folders, written.split_config)
        else:
            for split, folder in zip(read.splits, folders):
                self._write(_files(base, split.pattern), [folder], written.split_config)
        if payload := exec_properties.get(standard_component_specs.OUTPUT_DATA_FORMAT_KEY):
            examples_utils.set_payload_format(artifact, payload)
        if file_format := exec_properties.get(standard_component_specs.OUTPUT_FILE_FORMAT_KEY):
            examples_utils.set_file_format(artifact, write_split.to_file_format_str(file_format))

    def _write(self, paths: Sequence[str], folders: Sequence[str], config: example_gen_pb2.SplitConfig) -> None:
        """Writes the rows of some files to one folder, or shares them out as TFX does."""
        buckets: list[int] = []
        for split in config.splits:
            buckets.append(split.hash_buckets + (buckets[-1] if buckets else 0))
        with contextlib.ExitStack() as stack:
            writers = [stack.enter_context(_Writer(folder)) for folder in folders]
            for example in self.examples(paths):
                record = example.SerializeToString(deterministic=True)
                key = example if config.partition_feature_name else record
                writers[_partition(key, buckets, config) if buckets else 0].write(record)


def _files(base: str, pattern: str) -> list[str]:
    """Returns the files that Beam reads: not the empty ones that Spark marks a folder with."""
    (found,) = FileSystems.match([os.path.join(base, pattern)])
    paths = sorted(each.path for each in found.metadata_list if each.size_in_bytes)
    if not paths:
        raise DataNotFoundError(
            f"{os.path.join(base, pattern)} names no file", expected="the files of a table", todo="correct it"
        )
    return paths


def _partition(record: Union[tf.train.Example, bytes], buckets: list[int], config: example_gen_pb2.SplitConfig) -> int:
    # TFX's own: a row stays in its split, whatever the engine.
    try:
        return base_example_gen_executor._PartitionFn(record, len(buckets), buckets, config)
    except RuntimeError as error:
        raise DataError(
            f"data.split_by: {config.partition_feature_name}: {error}",
            expected="a column of words or whole numbers, with a value in each row",
            todo="name such a column",
        ) from error


class _Writer:
    """The files of a split; they have their names once all are written."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._unfinished: list[str] = []
        self._bytes = _FILE_BYTES
        self._file: Any = None

    def __enter__(self) -> _Writer:
        # An earlier execution may have left files: after a loss of the ML Metadata database, its number comes again.
        if fileio.exists(self._folder):
            fileio.rmtree(self._folder)
        fileio.makedirs(self._folder)
        self._next()
        return self

    def write(self, record: bytes) -> None:
        if self._bytes >= _FILE_BYTES:
            self._next()
        self._file.write(record)
        self._bytes += len(record)

    def __exit__(self, kind: Any, *error: object) -> None:
        self._file.close()
        if kind is None:
            count = len(self._unfinished)
            for number, path in enumerate(self._unfinished):
                name = f"{write_split.DEFAULT_TF_RECORD_FILE_NAME}-{number:05d}-of-{count:05d}.gz"
                fileio.rename(path, os.path.join(self._folder, name))

    def _next(self) -> None:
        if self._file:
            self._file.close()
        self._unfinished.append(os.path.join(self._folder, f".{len(self._unfinished)}"))
        self._file = tf.io.TFRecordWriter(self._unfinished[-1], tf.io.TFRecordOptions("GZIP"))
        self._bytes = 0
