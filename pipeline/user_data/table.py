"""A CSV or Parquet file of paths and labels: its columns."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from tfx_estimator.pipeline.base.errors import DataError
from tfx_estimator.pipeline.base.files import open_regular
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.user_data.reading import TABLE, Reading

PATHS = ("image", "path", "file", "filename")
LABELS = ("label", "class")
SPLITS = ("split",)
_HEAD_BYTES = 1 << 16


def read_table(table: Path) -> Reading:
    """Reads the names of a CSV's columns."""
    if table.suffix.lower() != ".csv":
        return Reading(TABLE, table)
    with open_regular(table) as file:
        head = file.read(_HEAD_BYTES)
    try:
        # The last character may be cut.
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(head)
    except UnicodeDecodeError as error:
        return Reading(TABLE, table, refusal=refuse_encoding(error, table))
    columns = next(csv.reader(io.StringIO(text.replace("\0", ""), newline="")), [])
    refusals = (refuse_columns(columns, names, table) for names in (PATHS, LABELS))
    return Reading(TABLE, table, refusal=next(filter(None, refusals), None))


def refuse_encoding(error: UnicodeDecodeError, path: Any) -> DataError:
    """Returns the error for a file that is not in UTF-8."""
    likely = "UTF-16" if error.object[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "LATIN1"
    what = one_line(f"{path} is not text in UTF-8, but probably in {likely}: see byte {error.start:,}")
    return DataError(what, expected="UTF-8", todo=f"convert it: `iconv -f {likely} -t UTF-8 OLD > NEW`")


def refuse_columns(columns: Sequence[str], names: Sequence[str], table: Any) -> Optional[DataError]:
    """Returns why none of the columns, or more than one, has one of these names; None if one has."""
    found = [name for name in columns if name.strip().lower() in names]
    if len(found) == 1:
        return None
    searched = " or ".join(dict.fromkeys(found) or names)
    return DataError(
        one_line(f"{table} has {len(found) or 'no'} columns named {searched}, of text or whole numbers"),
        expected=f"one; its columns are {', '.join(name for name in columns if name) or 'of other types'}",
        todo="name the columns image (or path, file, filename), label (or class), and split if there are several",
    )
