"""Tables of features as Parquet and TFRecord files."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from tests.artifacts import example
from tfx_estimator.pipeline.user_data.table import read_table

_TYPES = {"int": int, "float": float, "bytes": str, "": str}


def read_columns(table: str) -> dict[str, list[Any]]:
    """Returns the columns of a CSV file, of the kinds that TFX infers; an empty cell is None."""
    types = {column.name: _TYPES[column.kind] for column in read_table(table).columns}
    with open(table, newline="") as file:
        rows = [*csv.DictReader(file)]
    return {name: [kind(row[name]) if row[name] else None for row in rows] for name, kind in types.items()}


def write_parquet(path: Path, columns: Mapping[str, Any]) -> Path:
    """Writes columns: lists, or arrays of pyarrow."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table(dict(columns)), path, row_group_size=50)
    return path


def write_records(path: Path, columns: Mapping[str, Sequence[Any]]) -> Path:
    """Writes a tf.Example a row, in which None is a feature that is absent; gzipped, if the name ends in .gz."""
    return write_raw(path, [to_example(dict(zip(columns, values))) for values in zip(*columns.values())])


def write_raw(path: Path, records: Sequence[bytes]) -> Path:
    """Writes records."""
    import tensorflow as tf

    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path), "GZIP" if path.name.endswith(".gz") else "") as writer:
        for record in records:
            writer.write(record)
    return path


def to_example(row: Mapping[str, Any]) -> bytes:
    """Returns a tf.Example of a row's values, or lists of them; of an empty list a feature of no kind."""
    import tensorflow as tf

    made = tf.train.Example.FromString(example(**row))
    for name in (name for name, value in row.items() if value == []):
        made.features.feature[name].SetInParent()
    return made.SerializeToString()
