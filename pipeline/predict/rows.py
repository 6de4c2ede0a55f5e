"""Tables of features: CSV and Parquet files, each row of which is an example."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Iterator
from typing import Any

from tfx_estimator.data.sources.files import TABLE_BYTES, damaged, reading
from tfx_estimator.pipeline.base.files import open_regular

# A column's type, as Arrow names it; those that are neither numbers nor bools are kept as text.
TEXT = "string"
_TODO = "correct the table"


def is_parquet(path: Any) -> bool:
    """Returns whether it is a Parquet file, by its name."""
    return path.name.lower().endswith(".parquet")


def read_columns(table: Any) -> dict[str, str]:
    """Reads the names of a table's columns, and their types."""
    if is_parquet(table):
        with _parquet(table) as file:
            names, types = file.schema_arrow.names, file.schema_arrow.types
        kinds = [str(each) if _is_number(each) else TEXT for each in types]
    else:
        with _csv(table) as reader:
            names = next(reader, [])
        kinds = [TEXT] * len(names)
    if not names:
        raise damaged(table, "it is empty", "a line with the names of its columns", _TODO)
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise damaged(table, f"it has several columns {twice[0]!r}", "columns of different names", _TODO)
    return dict(zip(names, kinds))


def read_rows(table: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yields where each row is, its line in a CSV file, or its number from 0 on, and its cells; None is missing."""
    if is_parquet(table):
        number = 0
        with _parquet(table) as file:
            for batch in file.iter_batches():
                for cells in zip(*(column.to_pylist() for column in batch.columns)):
                    # pandas writes missing values as NaN.
                    yield f"row {number:,}", [None if cell != cell else cell for cell in cells]
                    number += 1
        return
    with _csv(table) as reader:
        next(reader, None)
        for cells in reader:
            if cells:
                yield f"line {reader.line_num:,}", cells


def to_text(cell: Any) -> Any:
    """Returns a cell of a column of TEXT as it is written."""
    return cell.decode(errors="backslashreplace") if isinstance(cell, bytes) else cell if cell is None else str(cell)


@contextlib.contextmanager
def _csv(table: Any) -> Iterator[Any]:
    with reading(table), open_regular(table) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
        reader = csv.reader(text, strict=True)
        try:
            yield reader
        except (csv.Error, UnicodeDecodeError) as error:
            if isinstance(error, UnicodeDecodeError) and not reader.line_num:
                raise  # it tells the encoding
            raise damaged(table, f"after line {reader.line_num:,}: {error}", "CSV in UTF-8", _TODO) from None


@contextlib.contextmanager
def _parquet(table: Any) -> Iterator[Any]:
    # Without pyarrow_hotfix, pyarrow runs code in a Parquet file (CVE-2023-47248).
    import pyarrow as pa
    import pyarrow_hotfix  # noqa: F401
    from pyarrow import parquet

    with reading(table), open_regular(table, TABLE_BYTES) as file:
        try:
            yield parquet.ParquetFile(file)
        except (pa.ArrowException, RuntimeError) as error:  # the last of pyarrow_hotfix
            raise damaged(table, f"it cannot be read as a table: {error}", "a Parquet file", _TODO) from None


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_integer(kind) or pa.types.is_boolean(kind) or kind in (pa.float32(), pa.float64())
