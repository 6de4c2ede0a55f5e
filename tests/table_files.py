"""Tables of features as Parquet and TFRecord files."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

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
    import tensorflow as tf

    rows = [dict(zip(columns, values)) for values in zip(*columns.values())]
    return write_raw(path, [to_example(row).SerializeToString() for row in rows] if rows else [], tf)


def write_raw(path: Path, records: Sequence[bytes], tf: Any = None) -> Path:
    """Writes records."""
    if tf is None:
        import tensorflow as tf
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = path.with_name(f".{path.name}.draft")
    with tf.io.TFRecordWriter(str(plain)) as writer:
        for record in records:
            writer.write(record)
    data = plain.read_bytes()
    plain.unlink()
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
    return path


def to_example(row: Mapping[str, Any]) -> Any:
    """Returns a tf.Example of a row's values, or lists of them."""
    import tensorflow as tf

    features = {name: _feature(value, tf) for name, value in row.items() if value is not None}
    return tf.train.Example(features=tf.train.Features(feature=features))


def _feature(value: Any, tf: Any) -> Any:
    values = value if isinstance(value, list) else [value]
    if not values:
        return tf.train.Feature()
    if isinstance(values[0], int):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    if isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    texts = [each.encode() if isinstance(each, str) else each for each in values]
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=texts))
