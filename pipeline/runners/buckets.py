"""Looks for the buckets that a run needs: TensorFlow's client would look for one that is not there without end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

import tensorflow as tf
from tfx.dsl.io import fileio

from tfx_estimator.pipeline.base.errors import PipelineError

_SCHEME = "gs://"


def check_buckets(addresses: Iterable[Optional[str]]) -> None:
    """Checks that the buckets of addresses are there.

    Args:
        addresses: Those of other places, and None, are left alone.

    Raises:
        PipelineError: One is not there, or cannot be asked for.
    """
    stored = [each for each in addresses if each and each.startswith(_SCHEME)]
    for name in dict.fromkeys(each.removeprefix(_SCHEME).partition("/")[0] for each in stored):
        try:
            reason = "" if fileio.exists(f"{_SCHEME}{name}/") else "there is no such bucket"
        except tf.errors.PermissionDeniedError:
            continue  # who may use its objects need not be allowed to look at the bucket
        except tf.errors.OpError as error:
            reason = error.message
        if reason:
            raise PipelineError(
                f"{_SCHEME}{name} cannot be used: {reason}",
                expected="a bucket that is there, and that this account may read and write",
                todo="see that it is, and `gcloud auth application-default login`; then run it again",
            )
