"""Buckets that a run uses: they are there, and one machine at a time works in a pipeline's folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Optional

import tensorflow as tf
from tfx.dsl.io import fileio

from tfx_estimator.components.trainer.training_claim import claimed
from tfx_estimator.pipeline.base.errors import PipelineError, TrainingError
from tfx_estimator.pipeline.folders import PipelineFolders

_SCHEME = "gs://"


def check_buckets(addresses: Iterable[Optional[str]]) -> None:
    """Checks that buckets are there: TensorFlow's client would look for one that is not without end.

    Args:
        addresses: Those of other places, and None, are left alone.

    Raises:
        PipelineError: One is not there, or cannot be asked for.
    """
    stored = [each for each in addresses if each and each.startswith(_SCHEME)]
    for name in dict.fromkeys(each.removeprefix(_SCHEME).partition("/")[0] for each in stored):
        bucket = f"{_SCHEME}{name}"
        # Who may use its objects need not be allowed to look at the bucket.
        with reached(bucket), contextlib.suppress(tf.errors.PermissionDeniedError):
            if not fileio.exists(f"{bucket}/"):
                raise _unusable(bucket, "there is no such bucket")


@contextlib.contextmanager
def only_machine(folders: PipelineFolders) -> Iterator[None]:
    """Refuses what another machine would do to a pipeline as long as the context lasts.

    Raises:
        PipelineError: Another machine works there, or the store cannot be read or written.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(claimed(folders.home))
        except TrainingError as error:
            raise PipelineError(
                f"another machine is using {folders.home}: {error.what}",
                expected="one run at a time",
                todo=f"wait for it, or name another {folders.option}",
            ) from error
        yield


@contextlib.contextmanager
def reached(folder: str) -> Iterator[None]:
    """Says which folder it is that cannot be read or written.

    Raises:
        PipelineError: The context cannot use it.
    """
    try:
        yield
    except (tf.errors.OpError, OSError) as error:
        raise _unusable(folder, getattr(error, "message", error)) from error


def _unusable(folder: str, reason: object) -> PipelineError:
    return PipelineError(
        f"{folder} cannot be used: {reason}",
        expected="a bucket that is there, and that this account may read and write",
        todo="see that it is, and `gcloud auth application-default login`; then run it again",
    )
