"""Writes predictions as CSV, JSON lines, Parquet or TFRecord, one row per example."""

from __future__ import annotations

import csv
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, Optional

import numpy as np

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.predict.rows import TEXT

_ROW_GROUP = 20_000
# The type of a score, as Arrow names it.
_SCORE = "float"


class Writer(ABC):
    """Writes one file.

    Args:
        file: Binary; the caller closes it.
        kept: The columns that name an example, with their types: `file`, or those of the table that is predicted.
        labels: The classes' names, in the order of their scores; none where a number is predicted.
        top: Writes only this many classes of each example, those with the highest scores; None writes all.
    """

    def __init__(self, file: IO[bytes], kept: Mapping[str, str], labels: Sequence[str], top: Optional[int]) -> None:
        self.file = file
        self.kept = kept
        self.labels = list(labels)
        self.top = min(top, len(self.labels)) if top and labels else None

    @property
    def columns(self) -> dict[str, str]:
        """The columns of a table, and their types."""
        added = {"class": TEXT}
        if not self.labels:
            added = {"prediction": _SCORE}
        elif self.top is None:
            added.update({f"score_{label}": _SCORE for label in self.labels})
        else:
            added["score"] = _SCORE
            for place in range(2, self.top + 1):
                added.update({f"class{place}": TEXT, f"score{place}": _SCORE})
        return {**self.kept, **{self.new(name): kind for name, kind in added.items()}}

    def new(self, name: str) -> str:
        """Returns the name of a column that is added, which is another one if the table has that already."""
        while name in self.kept:
            name = f"predicted_{name}"
        return name

    def cells_of(
        self, names: Sequence[str], cells: Optional[Sequence[Sequence[Any]]], examples: Optional[Sequence[bytes]]
    ) -> Sequence[Sequence[Any]]:
        """Returns what is written of the examples of a batch beside their predictions."""
        return cells or [[name] for name in names]

    def write(self, cells: Sequence[Sequence[Any]], values: np.ndarray) -> None:
        """Writes a batch: the cells of `kept`, and float32 [batch, classes]; or [batch, 1] without labels."""
        # File names need not be valid UTF-8.
        cells = [
            [each.encode("utf-8", "backslashreplace").decode() if isinstance(each, str) else each for each in row]
            for row in cells
        ]
        # Stable: of equal scores the first class wins, as with argmax.
        order = np.argsort(-values, axis=1, kind="stable")[:, : self.top or 1]
        self._write(cells, values, order)

    @abstractmethod
    def _write(self, cells: Sequence[Sequence[Any]], values: np.ndarray, order: np.ndarray) -> None:
        """Writes a batch; `order` holds each example's classes by descending score."""

    def end(self) -> None:  # noqa: B027
        """Flushes buffered rows, if there are any."""

    def drop(self) -> None:  # noqa: B027
        """Abandons the file, which the caller discards."""

    def rows(self, cells: Sequence[Sequence[Any]], values: np.ndarray, order: np.ndarray) -> Iterator[list[Any]]:
        """Yields the values of the columns."""
        for kept, scores, best in zip(cells, values, order):
            if not self.labels:
                yield [*kept, *scores]
            elif self.top is None:
                yield [*kept, self.labels[best[0]], *scores]
            else:
                yield [*kept, *(value for each in best for value in (self.labels[each], scores[each]))]


class CsvWriter(Writer):
    """A header, and a line for each example."""

    def __init__(self, file: IO[bytes], kept: Mapping[str, str], labels: Sequence[str], top: Optional[int]) -> None:
        super().__init__(file, kept, labels, top)
        self._writer = csv.writer(_Encoded(file), lineterminator="\n")
        self._writer.writerow(self.columns)

    def _write(self, cells: Sequence[Sequence[Any]], values: np.ndarray, order: np.ndarray) -> None:
        # str of a np.float32 has the fewest digits that identify it; a Python float would have more.
        rows = self.rows(cells, values, order)
        self._writer.writerows([["" if each is None else str(each) for each in row] for row in rows])


class JsonWriter(Writer):
    """An object for each example: what names it, class, and the scores by class; or the number."""

    def _write(self, cells: Sequence[Sequence[Any]], values: np.ndarray, order: np.ndarray) -> None:
        every = range(len(self.labels))
        for kept, scores, best in zip(cells, values, order):
            found = dict(zip(self.kept, kept))
            if self.labels:
                chosen = every if self.top is None else best
                found[self.new("class")] = self.labels[best[0]]
                found[self.new("scores")] = {self.labels[each]: float(str(scores[each])) for each in chosen}
            else:
                found[self.new("prediction")] = float(str(scores[0]))
            self.file.write(f"{json.dumps(found, ensure_ascii=False)}\n".encode())


class ParquetWriter(Writer):
    """The columns of the CSV file, with scores of 32 bits."""

    def __init__(self, file: IO[bytes], kept: Mapping[str, str], labels: Sequence[str], top: Optional[int]) -> None:
        super().__init__(file, kept, labels, top)
        import pyarrow as pa
        from pyarrow import parquet

        self._schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in self.columns.items()])
        self._parquet = parquet.ParquetWriter(file, self._schema)
        self._waiting: list[Any] = []

    def _write(self, cells: Sequence[Sequence[Any]], values: np.ndarray, order: np.ndarray) -> None:
        self._waiting += self.rows(cells, values, order)
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


class RecordWriter(Writer):
    """The tf.Examples of TFRecord files, with the columns of the CSV file as features."""

    compression = ""

    def __init__(self, file: IO[bytes], kept: Mapping[str, str], labels: Sequence[str], top: Optional[int]) -> None:
        super().__init__(file, {}, labels, top)
        import tensorflow as tf

        # It takes no open file.
        self._records = tf.io.TFRecordWriter(file.name, self.compression)
        self._names: list[str] = []

    def cells_of(
        self, names: Sequence[str], cells: Optional[Sequence[Sequence[Any]]], examples: Optional[Sequence[bytes]]
    ) -> Sequence[Sequence[Any]]:
        """See Writer."""
        if examples is None:
            raise DeclarationError(
                one_line(f"--output: {names[0]} cannot be written as TFRecord"),
                expected="TFRecord files of tf.Examples, predicted in this process",
                todo="name an output that ends in .csv, .jsonl or .parquet",
            )
        return [[example] for example in examples]

    def _write(self, cells: Sequence[Sequence[Any]], values: np.ndarray, order: np.ndarray) -> None:
        import tensorflow as tf

        examples = [tf.train.Example.FromString(record) for (record,) in cells]
        if not self._names:
            self.kept = {name: TEXT for example in examples for name in example.features.feature}
            self._names = [*self.columns][len(self.kept) :]
        for example, (_, *added) in zip(examples, self.rows(cells, values, order)):
            for name, value in zip(self._names, added):
                feature = example.features.feature[name]
                feature.Clear()
                if isinstance(value, str):
                    feature.bytes_list.value.append(value.encode())
                else:
                    feature.float_list.value.append(float(value))
            self._records.write(example.SerializeToString())

    def end(self) -> None:
        """See Writer."""
        self._records.close()

    def drop(self) -> None:
        """See Writer."""
        self._records.close()


class GzippedRecordWriter(RecordWriter):
    """The same, gzipped."""

    compression = "GZIP"


_WRITERS: dict[str, type[Writer]] = {
    ".csv": CsvWriter,
    ".jsonl": JsonWriter,
    ".parquet": ParquetWriter,
    ".tfrecord": RecordWriter,
    ".tfrecord.gz": GzippedRecordWriter,
}


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
