"""The executor of TfdsExampleGen."""

from __future__ import annotations

import dataclasses
import os
import uuid
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import tensorflow as tf
from tfx import types
from tfx.components.util import examples_utils
from tfx.dsl.components.base import base_beam_executor
from tfx.dsl.io import fileio
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils

from tfx_estimator.components.execution import Artifacts, unkeyed_property
from tfx_estimator.components.files import first_error, write_error
from tfx_estimator.components.inventory import note
from tfx_estimator.components.tfds_example_gen.properties import (
    DATA_KEY,
    FINGERPRINT_KEY,
    LOCATION_KEY,
    to_section,
    write_properties,
)
from tfx_estimator.data.features import IMAGE, LABEL
from tfx_estimator.data.sources import ExampleRange, ImageSource, open_source
from tfx_estimator.data.sources.splits import cut
from tfx_estimator.pipeline.base.errors import DamagedDataError, PipelineError, TfxEstimatorError
from tfx_estimator.pipeline.config.data import DataSection

# Prefix of a split's folder.
_SPLIT = "Split-"


class Executor(base_beam_executor.BaseBeamExecutor):
    """Writes the shards of all splits, one Beam element each.

    No shuffle and no group-by: an element reads an index range of the data set and writes one file, so all shards are
    written in parallel, each with one pass over its data, and with one batch in memory.
    """

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
        """Writes the Examples artifact."""
        self._log_startup(input_dict, output_dict, exec_properties)
        examples = artifact_utils.get_single_instance(output_dict["examples"])
        node = self._context.pipeline_node if self._context else None
        data = to_section(exec_properties[DATA_KEY], unkeyed_property(node, exec_properties, LOCATION_KEY))
        source = open_source(data)
        source.prepare()
        shards = {
            split: _shards(ranges, data.shards_for(), _split_uri(examples, split))
            for split, ranges in source.resolve_disjoint().items()
        }
        scratch = os.path.join(examples.uri, ".unfinished")
        # Readers take every file of a split. An earlier execution may have left files here: after a loss of the ML
        # Metadata database, execution ids start again.
        for name in fileio.listdir(examples.uri) if fileio.exists(examples.uri) else ():
            if name.startswith(_SPLIT):
                _remove(os.path.join(examples.uri, name))
        try:
            for folder in (scratch, *(_split_uri(examples, split) for split in shards)):
                fileio.makedirs(folder)
            self._write(data, [shard for each in shards.values() for shard in each], scratch)
            _check_files(shards)
        except BaseException:
            for split in shards:
                _remove(_split_uri(examples, split))
            raise
        finally:
            _remove(scratch)
        examples.split_names = artifact_utils.encode_split_names(list(shards))
        examples_utils.set_payload_format(examples, example_gen_pb2.FORMAT_TF_EXAMPLE)
        counts = {split: sum(shard.size for shard in each) for split, each in shards.items()}
        write_properties(examples, source.info, exec_properties[FINGERPRINT_KEY], counts, data.splits)
        note(examples.mlmd_artifact, examples.type_name)

    def _write(self, data: DataSection, shards: list[Shard], scratch: str) -> None:
        try:
            with self._make_beam_pipeline() as pipeline:
                _ = (
                    pipeline
                    | "Shards" >> beam.Create(shards)
                    # Without it a runner may fuse all shards into one worker's task.
                    | "Spread" >> beam.Reshuffle()
                    | "Write" >> beam.ParDo(WriteShard(data, scratch))
                )
        except Exception as error:
            # Most runners return errors only as text.
            raise first_error(scratch) or error from error


def _shards(ranges: tuple[ExampleRange, ...], most: int, folder: str) -> list[Shard]:
    """Cuts a split into non-empty files: a reader of an empty shard would have no examples."""
    count = min(most, sum(len(part) for part in ranges))
    return [
        Shard(os.path.join(folder, f"data_tfrecord-{index:05d}-of-{count:05d}"), piece)
        for index, piece in enumerate(cut(ranges, count))
    ]


def _split_uri(examples: types.Artifact, split: str) -> str:
    # TFX's own name for a split's folder; the artifact has no split names yet.
    return os.path.join(examples.uri, f"{_SPLIT}{split}")


def _check_files(shards: dict[str, list[Shard]]) -> None:
    """Raises an error if a runner has silently lost elements."""
    missing = [shard.path for each in shards.values() for shard in each if not fileio.exists(shard.path)]
    if missing:
        raise PipelineError(
            f"the Beam runner reported success, but did not write {len(missing)} files, first {missing[0]}",
            expected="every shard written",
            todo="use `beam: {runner: direct}`, or check the runner's logs",
        )


def _remove(folder: str) -> None:
    if fileio.exists(folder):
        fileio.rmtree(folder)


@dataclasses.dataclass(frozen=True)
class Shard:
    """A file to write, and its examples."""

    path: str
    ranges: tuple[ExampleRange, ...]

    @property
    def size(self) -> int:
        """Number of examples."""
        return sum(len(part) for part in self.ranges)


class WriteShard(beam.DoFn):
    """Writes one shard's examples to a TFRecord file, under a temporary name until it is complete.

    The bytes are deterministic, so a runner may retry a shard, or run it twice.

    Args:
        scratch: Folder for unfinished files, and for errors, which runners return only as text.
    """

    def __init__(self, data: DataSection, scratch: str) -> None:
        self._data = data
        self._scratch = scratch
        self._source: ImageSource

    def setup(self) -> None:
        """Opens the data set in the worker."""
        self._source = open_source(self._data)

    def process(self, shard: Shard) -> Iterator[int]:
        """Yields the number of examples written."""
        name = os.path.join(self._scratch, uuid.uuid4().hex)
        try:
            count = self._write(shard, name)
        except TfxEstimatorError as error:
            write_error(self._scratch, error)
            raise
        fileio.rename(name, shard.path, overwrite=True)
        yield count

    def _write(self, shard: Shard, path: str) -> int:
        example, count = _Template(), 0
        with tf.io.TFRecordWriter(path) as writer:
            for part in shard.ranges:
                for image, label in self._source.read(part):
                    writer.write(example.fill(image.tobytes(), label))
                    count += 1
        if count != shard.size:
            raise DamagedDataError(
                f"{shard.ranges} has {count:,} examples", expected=f"{shard.size:,}", todo="prepare the data set again"
            )
        return count


class _Template:
    """One tf.Example, reused for every record."""

    def __init__(self) -> None:
        self._example = tf.train.Example()
        self._image = self._example.features.feature[IMAGE].bytes_list.value
        self._label = self._example.features.feature[LABEL].int64_list.value
        self._image.append(b"")
        self._label.append(0)

    def fill(self, image: bytes, label: int) -> bytes:
        """Returns the serialized example; the order of its features is fixed."""
        self._image[0] = image
        self._label[0] = label
        return self._example.SerializeToString(deterministic=True)
