"""Who may work in a pipeline's folder in an object store: one machine at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from tfx_estimator.components.trainer.training_claim import claimed
from tfx_estimator.pipeline.base.errors import PipelineError, TrainingError
from tfx_estimator.pipeline.folders import PipelineFolders


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
        raise PipelineError(
            f"{folder} cannot be used: {getattr(error, 'message', error)}",
            expected="a bucket that is there, and that this account may read and write",
            todo="see that it is, and `gcloud auth application-default login`; then run it again",
        ) from error
