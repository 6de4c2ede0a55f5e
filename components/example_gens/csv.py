"""The executor of CsvExampleGen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tensorflow as tf
from tfx.components.example_gen.csv_example_gen import executor
from tfx.dsl.io import fileio
from tfx_bsl.coders import csv_decoder
from tfx_bsl.coders.csv_decoder import ColumnType

from tfx_estimator.components.example_gens import streaming
from tfx_estimator.pipeline.base.errors import DataError
from tfx_estimator.pipeline.user_data import csv_file


class Executor(streaming.Executor, executor.Executor):
    """Reads the files twice: for the kinds of their columns, and for the rows."""

    def examples(self, paths: Sequence[str]) -> Iterator[tf.train.Example]:
        """Yields a row after another.

        Raises:
            DataError: A row has more or fewer cells than there are columns.
        """
        names, kinds = _read_kinds(paths)
        values = [_VALUES[kind] for kind in kinds]
        for path in paths:
            with fileio.open(path, "rb") as file:
                for _, row in csv_file.read(path, file)[1]:
                    example = tf.train.Example()
                    features = example.features.feature
                    for name, value, cell in zip(names, values, row):
                        value(features[name], cell)
                    yield example


def _read_kinds(paths: Sequence[str]) -> tuple[tuple[str, ...], list[ColumnType]]:
    """Returns the names of the columns, and the kinds that TFX infers from all cells."""
    names: tuple[str, ...] = ()
    kinds: list[ColumnType] = []
    for path in paths:
        with fileio.open(path, "rb") as file:
            found, rows = csv_file.read(path, file)
            names = names or found
            if found != names:
                raise DataError(
                    f"{path} has other columns than {paths[0]}: {', '.join(found)}",
                    expected=", ".join(names),
                    todo="correct its first line, or leave out the file",
                )
            kinds = kinds or [ColumnType.UNKNOWN] * len(names)
            # Once a column is one of words, no cell makes it another.
            open_columns = [number for number, kind in enumerate(kinds) if kind != ColumnType.STRING]
            for _, row in rows:
                for number in open_columns:
                    kind = csv_decoder._InferValueType(row[number])
                    if kind > kinds[number]:
                        kinds[number] = kind
                        if kind == ColumnType.STRING:
                            open_columns = [each for each in open_columns if each != number]
    return names, kinds


def _int(feature: tf.train.Feature, cell: str) -> None:
    # A missing cell is a list without a value, as TFX has it.
    feature.int64_list.SetInParent()
    if cell:
        feature.int64_list.value.append(int(cell))


def _float(feature: tf.train.Feature, cell: str) -> None:
    feature.float_list.SetInParent()
    if cell:
        feature.float_list.value.append(float(cell))


def _bytes(feature: tf.train.Feature, cell: str) -> None:
    feature.bytes_list.SetInParent()
    if cell:
        feature.bytes_list.value.append(cell.encode())


def _unknown(feature: tf.train.Feature, cell: str) -> None:
    """A column without a value has none of a kind either."""


_VALUES = {
    ColumnType.UNKNOWN: _unknown,
    ColumnType.INT: _int,
    ColumnType.FLOAT: _float,
    ColumnType.STRING: _bytes,
}
