"""Numbers the words of all columns of a table by one analyzer.

TensorFlow Transform's own vocabulary is an analyzer a column, whose stages take Beam some seconds of each: minutes of a
table with many.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue
from tensorflow_transform.beam.experimental import PTransformAnalyzer

# The only line of a vocabulary without words: TensorFlow reads no empty file.
_NO_WORDS = b"\x01no words"
# So many counts are held in memory, of all columns: texts may have a kilobyte each.
_HELD = 300_000
_Count = tuple[tuple[int, bytes], int]


def numbered(columns: Mapping[str, tf.Tensor], most: int) -> dict[str, tf.Tensor]:
    """Returns the place of each word in its column's vocabulary, the most frequent first, as int64 [batch].

    Args:
        columns: String [batch], by the column's name; the empty word is missing.
        most: So many words are numbered; rarer, unknown and missing ones share the place after them.
    """
    names = list(columns)
    files = [f"words_{number}_{re.sub('[^A-Za-z0-9_]', '_', name)}" for number, name in enumerate(names)]
    places = tft.experimental.ptransform_analyzer(
        [columns[name] for name in names],
        _Vocabularies(files, most),
        [tf.string] * len(names),
        [[]] * len(names),
        [_NO_WORDS] * len(names),
        name="words",
    )
    found = {}
    for name, file, place in zip(names, files, places):
        tft.annotate_asset(file, file)
        found[name] = tft.apply_vocabulary(columns[name], place, num_oov_buckets=1)
    return found


class _Vocabularies(PTransformAnalyzer):
    """Batches of all columns -> the path of each column's vocabulary."""

    def __init__(self, files: Sequence[str], most: int) -> None:
        super().__init__()
        self._files, self._most = files, most

    def expand(self, batches: Any) -> tuple[Any, ...]:
        """Returns a collection of one path for each column."""
        lists = (
            batches
            | "Count" >> beam.ParDo(_CountWords())
            | "Sum" >> beam.CombinePerKey(sum)
            | "ByColumn" >> beam.Map(_by_column)
            | "MostFrequent" >> beam.combiners.Top.PerKey(self._most)
            | "All" >> beam.combiners.ToDict()
        )
        return tuple(
            lists | f"Write[{number}]" >> beam.Map(_write, number, os.path.join(self.base_temp_dir, file))
            for number, file in enumerate(self._files)
        )


class _CountWords(beam.DoFn):
    """Counts the words of many batches before Beam sees them."""

    def start_bundle(self) -> None:
        self._counts: dict[int, Counter[bytes]] = {}

    def process(self, columns: Sequence[np.ndarray]) -> Iterator[_Count]:
        for number, words in enumerate(columns):
            self._counts.setdefault(number, Counter()).update(words.ravel().tolist())
        if sum(map(len, self._counts.values())) > _HELD:
            yield from self._flush()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        window = GlobalWindow()
        for count in self._flush():
            yield WindowedValue(count, window.max_timestamp(), [window])

    def _flush(self) -> Iterator[_Count]:
        for number, counts in self._counts.items():
            for word, count in counts.items():
                # A vocabulary has a word a line.
                if word and b"\n" not in word and b"\r" not in word:
                    yield (number, word), count
        self._counts = {}


def _by_column(count: _Count) -> tuple[int, tuple[int, bytes]]:
    (number, word), times = count
    return number, (times, word)


def _write(lists: Mapping[int, Iterable[tuple[int, bytes]]], number: int, path: str) -> np.ndarray:
    words = [word for _, word in lists.get(number, ())] or [_NO_WORDS]
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(b"".join(word + b"\n" for word in words))
    return np.array(path, dtype=object)
