"""Reads TFRecord files without an operation of TensorFlow, which would initialise its devices, and all GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from tensorflow.python.framework import errors
from tensorflow.python.lib.io.tf_record import TFRecordOptions, tf_record_iterator
from tensorflow.python.util import deprecation

from tfx_estimator.pipeline.base.errors import DamagedDataError


def read_records(path: str, compression: str = "") -> Iterator[bytes]:
    """Reads the records of a file.

    Args:
        compression: `GZIP`, or none.

    Raises:
        DamagedDataError: The file is cut, changed, or compressed in another way.
    """
    try:
        # It verifies checksums. A tf.data pipeline would be no faster.
        with deprecation.silence():
            records = tf_record_iterator(path, TFRecordOptions(compression))
        yield from records
    except errors.DataLossError as error:
        raise DamagedDataError(
            f"damaged file {path}: {error.message}",
            expected="a whole TFRecord file, " + ("gzipped" if compression else "not compressed"),
            todo="write the file, or prepare the data set, again",
        ) from error
