"""Evaluation examples of `--examples`, instead of the run's: TFRecord files of tf.Examples."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_estimator.pipeline.base.errors import DataError, DataNotFoundError
from tfx_estimator.pipeline.base.text import first_line, one_line

_TODO = "name others by --examples"


def files_of(named: str) -> tuple[str, ...]:
    """Returns the files of a folder, such as Split-eval of a run's examples, or those that match a pattern."""
    path = os.path.abspath(os.path.expanduser(named))
    found = glob.glob(os.path.join(glob.escape(path), "*") if os.path.isdir(path) else path)
    files = tuple(sorted(each for each in found if os.path.isfile(each)))
    if not files:
        raise DataNotFoundError(
            f"there is no file {one_line(named)}",
            expected="TFRecord files of tf.Examples, by their folder or a pattern",
            todo=_TODO,
        )
    return files


def batches_of(files: Sequence[str], size: int, drop_remainder: bool = False) -> Iterator[np.ndarray]:
    """Yields batches of serialized examples; files with names in .gz are decompressed."""
    for compression in ("", "GZIP"):
        found = [each for each in files if each.endswith(".gz") == bool(compression)]
        records = tf.data.TFRecordDataset(found, compression).batch(size, drop_remainder)
        yield from records.as_numpy_iterator()


def check(files: Sequence[str], spec: Mapping[str, Any]) -> None:
    """Parses the first example of each file by the run's feature spec, label included."""
    empty = 0
    for file in files:
        try:
            first = next(iter(tf.data.TFRecordDataset(file).as_numpy_iterator()), None)
            if first is not None:
                tf.io.parse_example([first], dict(spec))
        except tf.errors.OpError as error:
            raise DataError(
                f"--examples: {one_line(file)} cannot be read: {first_line(error)}",
                expected=f"a TFRecord file, not compressed, of tf.Examples with {', '.join(sorted(spec))}",
                todo=_TODO,
            ) from error
        empty += first is None
    if files and empty == len(files):
        raise DataError(f"--examples: {one_line(files[0])} is empty", expected="an example at least", todo=_TODO)
