"""Examples as rows in memory: a data frame, or mappings of features, for a verb that reads tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.text import one_line


def to_rows(value: Any) -> list[Mapping[str, Any]]:
    """Returns the rows of a data frame, a list of mappings, or a mapping; empty if it is none of these."""
    if hasattr(value, "to_dict") and getattr(value, "ndim", 2) == 2:  # not a column of paths
        value = value.to_dict("records")
    if isinstance(value, (str, bytes, os.PathLike)) or not isinstance(value, Iterable):
        return []
    rows = [value] if isinstance(value, Mapping) else list(value)
    return rows if all(isinstance(row, Mapping) for row in rows) else []


def write_rows(rows: list[Mapping[str, Any]], path: str) -> str:
    """Writes rows as a Parquet file, with the columns of all; returns its path."""
    import pyarrow as pa
    from pyarrow import parquet

    columns = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        try:
            # pandas has NaN for missing values.
            columns[str(name)] = pa.array([row.get(name) for row in rows], from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise DeclarationError(
                one_line(f"rows: the column {name} cannot be read: {error}"),
                expected="values of one type in each column: numbers, text, or lists of them",
                todo="convert it",
            ) from None
    parquet.write_table(pa.table(columns), path)
    return path
