"""Examples as rows in memory: a data frame, or mappings of features, for a verb that reads tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Optional

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.text import one_line


def to_columns(value: Any) -> Optional[dict[str, list[Any]]]:
    """Returns the columns of a data frame or of a list of mappings, in which a missing value is None.

    Returns:
        None if it is neither.
    """
    if hasattr(value, "to_dict"):
        value = value.to_dict("records")
    if isinstance(value, (str, bytes, os.PathLike)) or not isinstance(value, Iterable):
        return None
    rows = [value] if isinstance(value, Mapping) else list(value)
    if not (rows and all(isinstance(row, Mapping) for row in rows)):
        return None
    return {str(name): [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}


def write_table(columns: Mapping[str, list[Any]], path: str) -> str:
    """Writes columns as a Parquet file; returns its path."""
    import pyarrow as pa
    from pyarrow import parquet

    arrays = {}
    for name, values in columns.items():
        try:
            # pandas has NaN for missing values.
            arrays[name] = pa.array(values, from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise DeclarationError(
                one_line(f"rows: the column {name} cannot be read: {error}"),
                expected="values of one type in each column: numbers, text, or lists of them",
                todo="convert it",
            ) from None
    parquet.write_table(pa.table(arrays), path)
    return path
