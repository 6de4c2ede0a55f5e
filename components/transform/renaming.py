"""Folders in a bucket are renamed, also where the store fails for a moment."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

_TIMES = 4


@contextlib.contextmanager
def renamed_again() -> Iterator[None]:
    """Has TensorFlow try again, in this process, where it took a folder for a file.

    It asks whether there is a folder first, and takes any error for a no: then it renames the object of that name,
    which is not there, and does not try again. TensorFlow Transform publishes its graph by two such renames.

    Source: `GcsFileSystem::RenameFile` of TensorFlow 2.15.
    """
    rename = tf.io.gfile.rename

    def again(src: str, dst: str, overwrite: bool = False) -> None:
        for tries_left in reversed(range(_TIMES)):
            try:
                rename(src, dst, overwrite)
                return
            except tf.errors.NotFoundError:
                if not tries_left or not tf.io.gfile.isdir(src):
                    raise

    tf.io.gfile.rename = again
    try:
        yield
    finally:
        tf.io.gfile.rename = rename
