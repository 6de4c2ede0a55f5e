"""A CSV or Parquet file of paths and labels."""

from __future__ import annotations

import dataclasses
import io
import posixpath
import re
import zlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Optional, Union

from tfx_estimator.data.sources.files import TABLE_BYTES, damaged, reading
from tfx_estimator.data.sources.image_files import ImageFile, ImageFilesSource
from tfx_estimator.pipeline.base.errors import DataError
from tfx_estimator.pipeline.base.files import open_regular
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.data import DataSection
from tfx_estimator.pipeline.user_data.names import TRAIN, nfc
from tfx_estimator.pipeline.user_data.read import LABELS, PATHS, SPLITS, refuse_columns
from tfx_estimator.pipeline.user_data.reading import find_classes, refuse_classes

# What tools write where there is no value.
_UNKNOWN = ("nan", "none", "null", "na", "n/a", "<na>")
# A whole number, possibly written as a float.
_NUMBER = re.compile(r"(0|-?[1-9]\d*)(\.0*)?\Z", re.ASCII)
# Its name, and for each row a string or an image.
_Column = tuple[str, list[Any]]


class ImageTableSource(ImageFilesSource):
    """One row per image: its path, relative to the table's folder, its label, and its split if there are several.

    Labels are names, or the numbers from 0; 1.0 is 1.
    """

    def __init__(self, section: DataSection, table: Any) -> None:
        columns = _read(table)
        paths = _column(columns, PATHS, table)
        labels = list(map(nfc, _column(columns, LABELS, table)))
        splits = _column(columns, SPLITS, table, TRAIN)
        keys = [path if isinstance(path, str) else path.name for path in paths]
        _refuse_repeated(keys, table)
        numbers = [_NUMBER.match(label) for label in labels]
        unknown = sorted({label for label in labels if label.lower() in _UNKNOWN})
        if unknown and any(numbers) and all(number or label in unknown for number, label in zip(numbers, labels)):
            raise _missing(table, labels.index(unknown[0]) + 1, f"label, but {unknown[0]!r}")
        notes = [f"rows of {table} of the class {each!r}, or of none: {labels.count(each):,}" for each in unknown]
        labels = [number[1] for number in numbers if number] if all(numbers) else labels
        found: dict[str, set[str]] = {}
        for split, label in zip(splits, labels):
            found.setdefault(split, set()).add(label)
        names = find_classes(found)
        # A wrong label must not become a class.
        if all(numbers) and (wrong := set(names) - {str(label) for label in range(len(names))}):
            row = next(row for row, label in enumerate(labels, 1) if label in wrong)
            raise DataError(
                one_line(f"{table}: row {row:,} has the label {labels[row - 1]}, of {len(names)} different ones"),
                expected="labels that are names, or whole numbers from 0 on without a gap",
                todo="correct the labels; leave out rows without one",
            )
        if error := refuse_classes(found, table):
            raise error
        index = {name: label for label, name in enumerate(names)}
        files: dict[str, list[ImageFile]] = {split: [] for split in found}
        for row, (path, key, label, split) in enumerate(zip(paths, keys, labels, splits), 1):
            named_by = one_line(f"{table}: row {row:,} names {path}")
            files[split].append(ImageFile(_place(table, path), posixpath.normpath(key), index[label], named_by))
        super().__init__(section, table.stem, names, files, notes)


@dataclasses.dataclass(frozen=True, order=True)
class TableImage:
    """An image in a row of a Parquet table, which stays in memory; it is opened like an `epath.Path`."""

    table: str
    name: str  # the number of its row, from 0 on
    cell: Any = dataclasses.field(compare=False)

    def __str__(self) -> str:
        return f"{self.table}:{self.name}"

    def open(self, mode: str = "rb") -> io.BytesIO:
        """Opens the image's bytes."""
        return io.BytesIO(self.cell.as_py())

    def stat(self) -> Any:
        """Returns the length, and a checksum instead of the time of a change."""
        return SimpleNamespace(length=self.cell.as_buffer().size, mtime=zlib.crc32(self.cell.as_buffer()))


def image_paths(table: Any) -> list[tuple[str, Any]]:
    """Reads only a table's images: the name of each, with its folder, and the path, or the image in the table."""
    places = [_place(table, path) for path in _column(_read(table), PATHS, table)]
    return [(str(place), place) for place in places]


def _place(table: Any, path: Union[str, TableImage]) -> Any:
    return table.parent / path if isinstance(path, str) else path


def _read(table: Any) -> list[_Column]:
    """Returns the columns of images, as these, and of text, whole numbers and bools, as strings; names may repeat."""
    # Without pyarrow_hotfix, pyarrow runs code in a Parquet file (CVE-2023-47248).
    import pyarrow as pa
    import pyarrow_hotfix  # noqa: F401
    from pyarrow import csv, parquet

    with reading(table), open_regular(table, TABLE_BYTES) as file:
        content = file.read()
        if table.suffix.lower() != ".parquet":
            content.decode()
        data = pa.BufferReader(content)
    try:
        if table.suffix.lower() == ".parquet":
            read = parquet.read_table(data)
        else:
            parsing = csv.ParseOptions(newlines_in_values=True)
            names = csv.open_csv(data, parse_options=parsing).schema.names
            data.seek(0)
            # As strings: 007 is a name, and so are `true`, `NA` and `null`.
            options = csv.ConvertOptions(column_types={name: pa.string() for name in names})
            read = csv.read_csv(data, parse_options=parsing, convert_options=options)
    except (pa.ArrowException, OSError, ValueError, RuntimeError) as error:  # the last of pyarrow_hotfix
        raise damaged(table, f"it cannot be read as a table: {error}", "CSV with a line of names, or Parquet") from None
    if not read.num_rows:
        raise damaged(table, "it has no rows", "a row for each image")
    columns: list[_Column] = []
    for name, column in zip(read.column_names, read.columns):
        column = _unwrapped(column)
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if kind in (pa.binary(), pa.large_binary()):
            cells = [TableImage(str(table), str(row), cell) for row, cell in enumerate(column)]
            columns.append((name, [each if each.cell.is_valid else None for each in cells]))
        elif kind in (pa.string(), pa.large_string(), pa.bool_()) or pa.types.is_integer(kind):
            columns.append((name, [None if value is None else str(value) for value in column.to_pylist()]))
        elif pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            # pandas writes missing values as NaN.
            values = [None if value != value else value for value in column.to_pylist()]
            if all(value is None or value == value // 1 for value in values):
                columns.append((name, [None if value is None else str(int(value)) for value in values]))
    return columns


def _unwrapped(column: Any) -> Any:
    """Returns a column, of Hugging Face's images their bytes, or their paths if they are in files of their own."""
    import pyarrow as pa
    from pyarrow import compute

    if not pa.types.is_struct(column.type) or {each.name for each in column.type} != {"bytes", "path"}:
        return column
    images, paths = (compute.struct_field(column, [column.type.get_field_index(name)]) for name in ("bytes", "path"))
    return images if images.null_count < len(images) else paths


def _column(columns: list[_Column], names: Sequence[str], table: Any, default: Optional[str] = None) -> list[Any]:
    found = [(name, values) for name, values in columns if name.strip().lower() in names]
    if not found and default is not None:
        return [default] * len(columns[0][1])
    if error := refuse_columns([name for name, _ in columns], names, table):
        raise error
    ((name, values),) = found
    values = [value.strip() if isinstance(value, str) else value for value in values]
    for row, value in enumerate(values, 1):
        if not value:
            raise _missing(table, row, name)
    return values


def _missing(table: Any, row: int, name: str) -> DataError:
    what = one_line(f"{table}: row {row:,} has no {name}")
    return DataError(what, expected="a value in every row", todo="add it, or remove the row")


def _refuse_repeated(paths: Sequence[str], table: Any) -> None:
    """Refuses repeated images: one might be in both the training and the evaluation split."""
    first: dict[str, int] = {}
    for row, path in enumerate(paths, 1):
        if (earlier := first.setdefault(posixpath.normpath(path), row)) != row:
            raise DataError(
                one_line(f"{table}: rows {earlier:,} and {row:,} name the same image, {path}"),
                expected="each image once",
                todo="remove one of them",
            )
