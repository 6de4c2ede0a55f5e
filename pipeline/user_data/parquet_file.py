"""The first rows of a Parquet file of features, and why TFX would not take it, or wrongly. Needs pyarrow."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Optional

from tfx_estimator.pipeline.base.errors import DamagedDataError, DataError
from tfx_estimator.pipeline.base.files import open_regular
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.user_data.read import PATHS
from tfx_estimator.pipeline.user_data.reading import listed
from tfx_estimator.pipeline.user_data.table_file import (
    BYTES,
    EMPTY,
    FLOAT,
    INT,
    Cell,
    TableFile,
    shortest,
    to_cell,
    to_text,
)

NAME, PATTERN, UNIT = "Parquet", "*.parquet", "row"
_BATCH = 1_024
_TYPES = "whole numbers, floats, bools, strings or bytes, or lists of them"


def read_file(path: Path, rows: int, cells: int) -> TableFile:
    """Reads the schema, and so many rows or cells at most, but one row; a row's number counts from 0.

    Raises:
        DataError: It is no Parquet file, or damaged, or has a column that no tf.Example can hold.
    """
    with _opened(path) as file:
        types = _types(path, file.schema_arrow)
        names = tuple(types)
        most = max(min(rows, cells // len(names)), 1)
        found: list[Sequence[Cell]] = []
        for batch in file.iter_batches(batch_size=min(most, _BATCH)):
            found += [[*row] for row in zip(*map(_cells, batch.columns))]
            if len(found) >= most:
                break
        is_whole = file.metadata.num_rows <= most
    kinds = {name: _kind(each) or EMPTY for name, each in types.items()}
    return TableFile(path, names, found[:most], [*range(most)], is_whole, kinds, UNIT)


def check(file: TableFile, first: TableFile) -> None:
    """Checks that a file has the columns of the first, in any order.

    Raises:
        DataError: It has not.
    """
    for one, other in ((file, first), (first, file)):
        if lacking := [name for name in other.names if name not in one.names]:
            raise DataError(
                one_line(f"{one.path} has no column {listed(lacking)}, which {other.path} has"),
                expected="the same columns in all files",
                todo="write it again with all columns, or leave it out",
            )


def scan(path: Path, name: str) -> Iterator[tuple[int, Cell]]:
    """Yields the number and the cell of a column in all rows."""
    with _opened(path) as file:
        batches = file.iter_batches(columns=[name])
        yield from enumerate(cell for batch in batches for cell in _cells(batch.columns[0]))


def holds_features(path: Path) -> bool:
    """Returns whether no column is one of images."""
    with _opened(path) as file:
        return not {name.strip().lower() for name in file.schema_arrow.names}.intersection(PATHS)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    # Without pyarrow_hotfix, pyarrow runs code in a Parquet file (CVE-2023-47248).
    import pyarrow as pa
    import pyarrow_hotfix  # noqa: F401
    from pyarrow import parquet

    with open_regular(path) as file:
        try:
            yield parquet.ParquetFile(file)
        except (pa.ArrowException, OSError, RuntimeError) as error:  # the last of pyarrow_hotfix
            if isinstance(error, OSError) and error.errno:
                raise
            raise DamagedDataError(
                one_line(f"{path} is no Parquet file, or damaged: {error}"),
                expected="a whole Parquet file",
                todo="write it again, or leave it out",
            ) from None


def _types(path: Path, schema: Any) -> dict[str, Any]:
    """Returns the types of the columns."""
    names = schema.names
    what, expected, todo = "", f"columns of {_TYPES}", ""
    wrong = next((each for each in schema if _kind(each.type) is None), None)
    if not names:
        what, todo = f"{path} has no column", "write it again, or leave it out"
    elif twice := next((name for name in names if names.count(name) > 1), ""):
        what, todo = f"{path} has several columns {twice}", "rename one"
    elif wrong:
        what = f"column {wrong.name} of {path} is of the type {wrong.type}, which no tf.Example can hold"
        todo = "write it as a number or a string, or leave it out"
    if what:
        raise DataError(one_line(what), expected=expected, todo=todo)
    return dict(zip(names, schema.types))


def _kind(kind: Any) -> Optional[str]:
    """Returns the kind of the values of an Arrow type; None if no tf.Example can hold them."""
    import pyarrow as pa

    of = pa.types
    value = _value_type(kind)
    tests: dict[str, Sequence[Callable[[Any], bool]]] = {
        EMPTY: (of.is_null,),
        INT: (of.is_integer, of.is_boolean),
        FLOAT: (of.is_floating,),
        BYTES: (of.is_string, of.is_large_string, of.is_binary, of.is_large_binary, of.is_fixed_size_binary),
    }
    return next((each for each, are in tests.items() if any(is_one(value) for is_one in are)), None)


def _value_type(kind: Any) -> Any:
    """Returns the type of the values of a column, of which each row may have several, or of which each occurs once."""
    import pyarrow as pa

    of = pa.types
    if of.is_list(kind) or of.is_large_list(kind) or of.is_fixed_size_list(kind):
        kind = kind.value_type
    return kind.value_type if of.is_dictionary(kind) else kind


def _cells(column: Any) -> Iterator[Cell]:
    """Yields the cells of a column."""
    kind = _kind(column.type)
    is_short = str(_value_type(column.type)) in ("float", "halffloat")
    write = {INT: lambda value: str(int(value)), FLOAT: shortest if is_short else _number, BYTES: _text}.get(kind or "")
    for value in column.to_pylist():
        values = value if isinstance(value, list) else [value]
        yield to_cell([write(each) for each in values if each is not None]) if write else ""


def _number(value: float) -> str:
    return repr(value).removesuffix(".0")


def _text(value: Any) -> str:
    return to_text(value) if isinstance(value, bytes) else str(value)
