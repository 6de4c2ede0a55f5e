"""The executor of CsvExampleGen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Optional

import tensorflow as tf
from tfx.components.example_gen.csv_example_gen import executor
from tfx.dsl.io import fileio
from tfx_bsl.coders import csv_decoder
from tfx_bsl.coders.csv_decoder import ColumnType

from tfx_estimator.components.example_gens import streaming
from tfx_estimator.pipeline.user_data import csv_file


class Executor(streaming.Executor, executor.Executor):
    """Reads the files twice: for the kinds of their columns, and for the rows."""

    def examples(self, paths: Sequence[str]) -> Iterator[tf.train.Example]:
        """Yields a row after another, in one example.

        Raises:
            DataError: A row has more or fewer cells than there are columns, or a file other columns.
        """
        names, kinds = _read_kinds(paths)
        # One example is filled again and again: a new one takes four times as long.
        example = tf.train.Example()
        lists = [_list(example.features.feature[name], kind) for name, kind in zip(names, kinds)]
        columns = [(number, *each) for number, each in enumerate(lists) if each]
        for path in paths:
            with fileio.open(path, "rb") as file:
                for _, row in csv_file.read(path, file)[1]:
                    for number, values, value in columns:
                        del values[:]
                        if cell := row[number]:
                            values.append(value(cell))
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
                raise csv_file.refuse_names(path, found, paths[0], names)
            kinds = kinds or [ColumnType.UNKNOWN] * len(names)
            # Once a column is one of words, no cell makes it another.
            open_columns = [number for number, kind in enumerate(kinds) if kind != ColumnType.STRING]
            for _, row in rows:
                for number in open_columns:
                    cell = row[number]
                    if not cell or (
                        kinds[number] == ColumnType.INT and cell.isascii() and cell.isdecimal() and len(cell) < 19
                    ):
                        continue
                    # As TFX does: of bytes, other digits than those of ASCII are words.
                    kind = csv_decoder._InferValueType(cell.encode())
                    if kind > kinds[number]:
                        kinds[number] = kind
                        if kind == ColumnType.STRING:
                            open_columns = [each for each in open_columns if each != number]
    return names, kinds


def _list(feature: tf.train.Feature, kind: ColumnType) -> Optional[tuple[Any, Callable[[str], Any]]]:
    """Returns a feature's list, and what reads a cell for it; None for a column without a value, which has no kind."""
    if kind == ColumnType.UNKNOWN:
        feature.SetInParent()
        return None
    name, value = _LISTS[kind]
    chosen = getattr(feature, name)
    # A missing cell is a list without a value, as TFX has it.
    chosen.SetInParent()
    return chosen.value, value


_LISTS: dict[ColumnType, tuple[str, Callable[[str], Any]]] = {
    ColumnType.INT: ("int64_list", int),
    ColumnType.FLOAT: ("float_list", float),
    ColumnType.STRING: ("bytes_list", str.encode),
}
