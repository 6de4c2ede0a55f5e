"""Rows as those of Criteo's display advertising data: 13 numbers, 26 words, and whether the advertisement was clicked.

Numbers have long tails and are sometimes missing; of a word's values, up to a million, a few are frequent and most are
rare. The label depends on some of both, so that a model learns.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import tensorflow as tf

NUMBERS = tuple(f"i{number}" for number in range(1, 14))
WORDS = tuple(f"c{number}" for number in range(1, 27))
# Values of each word: as different as those of Criteo's, from some to a million.
SIZES = tuple(int(10 ** (0.6 + 5.4 * number / 25)) for number in range(26))
LABEL = "clicked"
_BLOCK = 10_000


def columns(rows: int, seed: int = 0) -> Iterator[dict[str, np.ndarray]]:
    """Yields blocks of columns: numbers float32 with NaN for missing, words int64 from 0, the label int64."""
    generator = np.random.default_rng(seed)
    for start in range(0, rows, _BLOCK):
        count = min(_BLOCK, rows - start)
        block: dict[str, np.ndarray] = {}
        for number, name in enumerate(NUMBERS):
            values = np.floor(generator.lognormal(number / 4, 1.5, count))
            values[generator.random(count) < number / 40] = np.nan
            block[name] = values.astype(np.float32)
        for name, size in zip(WORDS, SIZES):
            # Of a Zipf-like distribution: the logarithm of the place is uniform.
            block[name] = np.minimum(np.exp(generator.random(count) * np.log(size + 1)), size).astype(np.int64) - 1
        score = 0.5 * np.log1p(np.nan_to_num(block["i1"])) + np.where(block["c3"] % 3 == 0, 1.0, -1.0) - 1.2
        score += np.where(block["c9"] % 7 < 3, 0.7, -0.7)
        block[LABEL] = (generator.random(count) < 1 / (1 + np.exp(-score))).astype(np.int64)
        yield block


def write_csv(folder: Path, rows: int, files: int = 4, seed: int = 0) -> None:
    """Writes them as a day of CSV files: words as eight hexadecimal digits, missing numbers as empty cells."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        count = rows * (number + 1) // files - rows * number // files
        for index, block in enumerate(columns(count, seed=seed * files + number)):
            for name in WORDS:
                digits = (block[name] * 2_654_435_761 % 2**32).astype(">u4").tobytes().hex()
                block[name] = np.array([digits[start : start + 8] for start in range(0, len(digits), 8)], object)
            frame = pd.DataFrame(block).astype(dict.fromkeys(NUMBERS, "Int64"))
            frame.to_csv(folder / f"part-{number}.csv", mode="a" if index else "w", header=not index, index=False)


def write_transformed(path: Path, rows: int, seed: int = 0) -> None:
    """Writes them as Transform would: standardised numbers and the words' places."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for block in columns(rows, seed):
            numbers = np.log1p(np.nan_to_num(np.stack([block[name] for name in NUMBERS], 1)))
            for row in range(len(numbers)):
                example = tf.train.Example()
                feature = example.features.feature
                for name, value in zip(NUMBERS, numbers[row]):
                    feature[name].float_list.value.append(value)
                for name in (*WORDS, LABEL):
                    feature[name].int64_list.value.append(block[name][row])
                writer.write(example.SerializeToString())


def transformed_spec() -> dict[str, tf.io.FixedLenFeature]:
    """Returns the feature spec of `write_transformed`."""
    words = {name: tf.io.FixedLenFeature([], tf.int64) for name in (*WORDS, LABEL)}
    return {name: tf.io.FixedLenFeature([], tf.float32) for name in NUMBERS} | words
