"""A CSV or Parquet file of paths and labels."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import Any, Optional

from tfx_estimator.data.sources.files import damaged, reading
from tfx_estimator.data.sources.image_files import ImageFile, ImageFilesSource
from tfx_estimator.pipeline.base.errors import DataError, DataNotFoundError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.data import DataSection
from tfx_estimator.pipeline.user_data.names import TRAIN, nfc
from tfx_estimator.pipeline.user_data.reading import find_classes, refuse_classes
from tfx_estimator.pipeline.user_data.table import LABELS, PATHS, SPLITS, refuse_columns

# A whole number, possibly written as a float.
_NUMBER = re.compile(r"(0|-?[1-9]\d*)(\.0*)?\Z", re.ASCII)
# Its name, and a string for each row.
_Column = tuple[str, list[Optional[str]]]


class ImageTableSource(ImageFilesSource):
    """One row per image: its path, relative to the table's folder, its label, and its split if there are several.

    Labels are names, or the numbers from 0; 1.0 is 1.
    """

    def __init__(self, section: DataSection, table: Any) -> None:
        if not table.is_file():
            raise DataNotFoundError(
                one_line(f"no file {table}"), expected="a CSV or Parquet file", todo="change data.dataset"
            )
        columns = _read(table)
        paths = _column(columns, PATHS, table)
        labels = list(map(nfc, _column(columns, LABELS, table)))
        splits = _column(columns, SPLITS, table, TRAIN)
        _refuse_repeated(paths, table)
        numbers = [_NUMBER.match(label) for label in labels]
        labels = [number[1] for number in numbers if number] if all(numbers) else labels
        found: dict[str, dict[str, None]] = {}
        for split, label in zip(splits, labels):
            found.setdefault(split, {})[label] = None
        by_name = {split: list(each) for split, each in found.items()}
        names = _numbered(labels, splits, table) if all(numbers) else find_classes(by_name)
        if error := refuse_classes(by_name, table):
            raise error
        index = {name: label for label, name in enumerate(names)}
        files: dict[str, list[ImageFile]] = {split: [] for split in found}
        for row, (path, label, split) in enumerate(zip(paths, labels, splits), 1):
            named_by = one_line(f"{table}: row {row:,} names {path}")
            files[split].append(ImageFile(table.parent / path, posixpath.normpath(path), index[label], named_by))
        super().__init__(section, table.stem, names, files)


def image_paths(table: Any) -> list[tuple[str, Any]]:
    """Reads only the paths of a table's images: each with its folder, as a string and as a path."""
    paths = _column(_read(table), PATHS, table)
    return [(str(table.parent / path), table.parent / path) for path in paths]


def _read(table: Any) -> list[_Column]:
    """Returns the columns of strings or whole numbers, as strings; names may be repeated."""
    # Without pyarrow_hotfix, pyarrow runs code in a Parquet file (CVE-2023-47248).
    import pyarrow as pa
    import pyarrow_hotfix  # noqa: F401
    from pyarrow import csv, parquet

    with reading(table):
        data = pa.BufferReader(table.read_bytes())
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
    columns = []
    for number, name in enumerate(read.column_names):
        kind = read.schema.field(number).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind):
            columns.append((name, [None if value is None else str(value) for value in read.column(number).to_pylist()]))
        elif pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            # pandas writes missing values as NaN.
            values = [None if value != value else value for value in read.column(number).to_pylist()]
            if all(value is None or value == value // 1 for value in values):
                columns.append((name, [None if value is None else str(int(value)) for value in values]))
    return columns


def _column(columns: list[_Column], names: Sequence[str], table: Any, default: Optional[str] = None) -> list[str]:
    found = [(name, values) for name, values in columns if name.strip().lower() in names]
    if not found and default is not None:
        return [default] * len(columns[0][1])
    if error := refuse_columns([name for name, _ in columns], names, table):
        raise error
    values: list[str] = []
    ((name, texts),) = found
    for row, value in enumerate(texts, 1):
        if value is None or not value.strip():
            raise DataError(
                one_line(f"{table}: row {row:,} has no {name}"),
                expected="a value in every row",
                todo="add it, or remove it",
            )
        values.append(value.strip())
    return values


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


def _numbered(labels: Sequence[str], splits: Sequence[str], table: Any) -> list[str]:
    """Returns the classes of numeric labels: from 0 without a gap, each with training examples."""
    trained = {label for label, split in zip(labels, splits) if split == TRAIN or TRAIN not in splits}
    count = 0
    while str(count) in trained:
        count += 1
    names = {str(label): None for label in range(count)}
    for row, label in enumerate(labels, 1):
        if label not in names:
            raise DataError(
                one_line(f"{table}: row {row:,} has the label {label}, but no training image has the label {count}"),
                expected="labels that are names, or numbers from 0 to the last, each with training images",
                todo="correct the labels",
            )
    return list(names)
