"""Writes predictions as CSV, JSON lines or Parquet, one row per example."""

from __future__ import annotations

import csv
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import IO, Any, Optional

import numpy as np

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.text import one_line

_ROW_GROUP = 20_000


class Writer(ABC):
    """Writes one file.

    Args:
        file: Binary; the caller closes it.
        labels: The classes' names, in the order of their scores.
        top: Writes only this many classes of each example, those with the highest scores; None writes all.
    """

    def __init__(self, file: IO[bytes], labels: Sequence[str], top: Optional[int]) -> None:
        self.file = file
        self.labels = list(labels)
        self.top = min(top, len(self.labels)) if top else None

    @property
    def columns(self) -> list[str]:
        """Names of the columns of a table."""
        if self.top is None:
            return ["file", "class", *(f"score_{label}" for label in self.labels)]
        others = [f"{what}{place}" for place in range(2, self.top + 1) for what in ("class", "score")]
        return ["file", "class", "score", *others]

    def write(self, names: Sequence[str], probabilities: np.ndarray) -> None:
        """Writes a batch: probabilities float32 [batch, classes]."""
        # File names need not be valid UTF-8.
        names = [name.encode("utf-8", "backslashreplace").decode() for name in names]
        # Stable: of equal scores the first class wins, as with argmax.
        order = np.argsort(-probabilities, axis=1, kind="stable")[:, : self.top or 1]
        self._write(names, probabilities, order)

    @abstractmethod
    def _write(self, names: Sequence[str], probabilities: np.ndarray, order: np.ndarray) -> None:
        """Writes a batch; `order` holds each example's classes by descending score."""

    def end(self) -> None:  # noqa: B027
        """Flushes buffered rows, if there are any."""

    def drop(self) -> None:  # noqa: B027
        """Abandons the file, which the caller discards."""

    def rows(self, names: Sequence[str], probabilities: np.ndarray, order: np.ndarray) -> Any:
        """Yields the values of the columns."""
        for name, scores, best in zip(names, probabilities, order):
            if self.top is None:
                yield [name, self.labels[best[0]], *scores]
            else:
                yield [name, *(value for each in best for value in (self.labels[each], scores[each]))]


class CsvWriter(Writer):
    """A header, and a line for each example."""

    def __init__(self, file: IO[bytes], labels: Sequence[str], top: Optional[int]) -> None:
        super().__init__(file, labels, top)
        self._writer = csv.writer(_Encoded(file), lineterminator="\n")
        self._writer.writerow(self.columns)

    def _write(self, names: Sequence[str], probabilities: np.ndarray, order: np.ndarray) -> None:
        # str of a np.float32 has the fewest digits that identify it; a Python float would have more.
        self._writer.writerows([map(str, row) for row in self.rows(names, probabilities, order)])


class JsonWriter(Writer):
    """An object for each example: file, class, and the scores by class."""

    def _write(self, names: Sequence[str], probabilities: np.ndarray, order: np.ndarray) -> None:
        every = range(len(self.labels))
        for name, scores, best in zip(names, probabilities, order):
            chosen = every if self.top is None else best
            by_class = {self.labels[each]: float(str(scores[each])) for each in chosen}
            line = json.dumps({"file": name, "class": self.labels[best[0]], "scores": by_class}, ensure_ascii=False)
            self.file.write(f"{line}\n".encode())


class ParquetWriter(Writer):
    """The columns of the CSV file, with scores of 32 bits."""

    def __init__(self, file: IO[bytes], labels: Sequence[str], top: Optional[int]) -> None:
        super().__init__(file, labels, top)
        import pyarrow as pa
        from pyarrow import parquet

        kinds = [
            pa.string() if name in ("file",) or name.startswith("class") else pa.float32() for name in self.columns
        ]
        self._schema = pa.schema(list(zip(self.columns, kinds)))
        self._parquet = parquet.ParquetWriter(file, self._schema)
        self._waiting: list[Any] = []

    def _write(self, names: Sequence[str], probabilities: np.ndarray, order: np.ndarray) -> None:
        self._waiting += self.rows(names, probabilities, order)
        if len(self._waiting) >= _ROW_GROUP:
            self._flush()

    def end(self) -> None:
        """See Writer."""
        if self._waiting:
            self._flush()
        self._parquet.close()

    def drop(self) -> None:
        """See Writer."""
        # Otherwise pyarrow writes the footer on garbage collection, when the file is already closed.
        self._parquet.is_open = False

    def _flush(self) -> None:
        import pyarrow as pa

        columns = zip(*self._waiting)
        self._parquet.write_table(
            pa.table(
                [pa.array(values, field.type) for values, field in zip(columns, self._schema)], schema=self._schema
            )
        )
        self._waiting = []


class _Encoded:
    """A text file that writes UTF-8 to a binary one."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, text: str) -> None:
        self._file.write(text.encode())


_WRITERS: dict[str, type[Writer]] = {".csv": CsvWriter, ".jsonl": JsonWriter, ".parquet": ParquetWriter}


def writer_for(name: Optional[str]) -> type[Writer]:
    """Returns the writer for a file's extension; for None, standard output, CSV."""
    if name is None:
        return CsvWriter
    found = next((kind for ending, kind in _WRITERS.items() if name.lower().endswith(ending)), None)
    if found is None:
        raise DeclarationError(
            f"--output {one_line(name)}: its extension is none that can be written",
            expected=f"a file that ends in {', '.join(_WRITERS)}",
            todo="name such a file",
        )
    return found
