"""The nodes of a pipeline that read, describe and validate its data: of images, or of a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from tfx.components.statistics_gen.component import StatisticsGen
from tfx.proto import example_gen_pb2
from tfx.proto.range_config_pb2 import RangeConfig, StaticRange
from tfx.types import BaseChannel, Channel
from tfx.types.channel import union

from tfx_estimator.components.day_statistics_gen import DayStatisticsGen
from tfx_estimator.components.example_gens import CsvExampleGen, ImportExampleGen, ParquetExampleGen
from tfx_estimator.components.example_validator import ExampleValidator
from tfx_estimator.components.image_schema_gen import ImageSchemaGen
from tfx_estimator.components.schema_gen import SchemaGen
from tfx_estimator.components.tfds_example_gen import TfdsExampleGen
from tfx_estimator.data.features import LABEL
from tfx_estimator.data.sources import open_source
from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.config.data import DataSection, Table
from tfx_estimator.pipeline.config.table import is_here, read_declared, task
from tfx_estimator.pipeline.config.task import CLASSES, Task

# By the key of `data` that names the files.
_EXAMPLE_GENS: dict[str, Any] = {"csv": CsvExampleGen, "parquet": ParquetExampleGen, "tfrecord": ImportExampleGen}


@dataclass(frozen=True)
class Ingested:
    """What the other nodes need of the data.

    Args:
        nodes: In their order; the last one ends the run if an example is invalid.
        task: What a model predicts of an example.
        image_shape: Height, width and channels; zeros for a table.
    """

    nodes: tuple[Any, ...]
    examples: BaseChannel
    schema: Channel
    task: Task
    image_shape: tuple[int, int, int] = (0, 0, 0)

    @property
    def is_table(self) -> bool:
        """True for a table of features."""
        return not any(self.image_shape)


def check_available(data: DataSection) -> None:
    """Checks within seconds that the data exist.

    Raises:
        DataError: They do not, or cannot be read.
    """
    if not data.is_table:
        open_source(data).check_available()
    elif is_here(data):
        read_declared(data)


def prepare(data: DataSection) -> None:
    """Downloads and converts a data set of images if needed."""
    if not data.is_table:
        open_source(data).prepare()


def ingest(declaration: Declaration, kept: str = "") -> Ingested:
    """Makes the nodes.

    Args:
        kept: Where the pipeline keeps the schema of a table; empty if nowhere.

    Raises:
        DataError: The data cannot be opened.
    """
    return _table(declaration, kept) if declaration.data.is_table else _images(declaration)


def _images(declaration: Declaration) -> Ingested:
    info = open_source(declaration.data).info
    example_gen = TfdsExampleGen(declaration.data.copy(update={"shards": declaration.shards}))
    examples = example_gen.outputs["examples"]
    schema = ImageSchemaGen(examples=examples)
    statistics = StatisticsGen(examples=examples, schema=schema.outputs["schema"])
    validator = ExampleValidator(
        statistics=statistics.outputs["statistics"],
        schema=schema.outputs["schema"],
        image_bytes=math.prod(info.image_shape),
    )
    return Ingested(
        (example_gen, schema, statistics, validator),
        examples,
        schema.outputs["schema"],
        Task(CLASSES, LABEL, info.label_names),
        info.image_shape,
    )


def _table(declaration: Declaration, kept: str) -> Ingested:
    data, table = declaration.data, declaration.data.table()
    # One node a day, by its name: a day that has been read stays in the cache. A service reads its newest day.
    days: list[Optional[int]] = [*([] if table.before is None else [table.before]), *table.spans] if kept else []
    read = [_read(data, table, day) for day in days or [None]]
    describe = DayStatisticsGen if days else StatisticsGen
    described = [describe(examples=each.outputs["examples"]) for each in read]
    for node, day in zip(described, days):
        node.with_id(f"StatisticsGen.{day}")
    first, asked = -len(table.spans) if days else 0, task(declaration, kept)
    schema = SchemaGen(
        statistics=_all([each.outputs["statistics"] for each in described[first:]]),
        declared=data.schema,
        kept=kept,
        label=data.label,
        has_days=bool(days),
        classes=asked.names if asked.kind == CLASSES else (),
    )
    validator = ExampleValidator(
        statistics=_all([each.outputs["statistics"] for each in described]),
        schema=schema.outputs["schema"],
        declared=data.schema,
        days=len(table.spans) if days else None,
    )
    examples = _all([each.outputs["examples"] for each in read[first:]])
    return Ingested((*read, *described, schema, validator), examples, schema.outputs["schema"], asked)


def _read(data: DataSection, table: Table, day: Optional[int]) -> Any:
    split, shares = example_gen_pb2.Input.Split, example_gen_pb2.SplitConfig
    patterns = table.patterns or {"single_split": table.pattern}
    read = example_gen_pb2.Input(splits=[split(name=name, pattern=pattern) for name, pattern in patterns.items()])
    written = example_gen_pb2.Output(
        split_config=shares(
            splits=[shares.Split(name=name, hash_buckets=count) for name, count in table.buckets.items()],
            partition_feature_name=data.split_by,
        )
    )
    only = None if day is None else StaticRange(start_span_number=day, end_span_number=day)
    node = _EXAMPLE_GENS[table.key](
        input_base=table.folder,
        input_config=read,
        output_config=None if table.patterns else written,
        range_config=only and RangeConfig(static_range=only),
    )
    return node if day is None else node.with_id(f"{node.id}.{day}")


def _all(channels: Sequence[Channel]) -> BaseChannel:
    """Returns one channel of the artifacts of several."""
    return channels[0] if len(channels) == 1 else union(channels)
