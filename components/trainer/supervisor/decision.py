"""What is declared as `auto` becomes what a trial found to be faster: once in a training folder, for all tasks."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Optional

from tfx_estimator.components.files import poll_seconds
from tfx_estimator.components.trainer.protocol.job import Job
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.components.trainer.speed_trial import verdict as speed_trial
from tfx_estimator.components.trainer.speed_trial.verdict import Verdict
from tfx_estimator.pipeline import errors

_POLL_SECONDS = 0.2
_REASON = 200


def find_verdict(job: Job, try_out: Callable[[], None]) -> Optional[Verdict]:
    """Returns the verdict of a training: that of its folder, or of a trial.

    Args:
        job: What to train.
        try_out: Runs the task of the trial, to its end.

    Returns:
        The verdict; None if the trial was ended before it came to one.

    Raises:
        TfxEstimatorError: As `try_out`, but that its task failed or stalled: training then goes the plain way, or
            fails with a better error.
    """
    section = Settings.from_dict(job.settings).trainer
    assert section is not None
    if found := speed_trial.read(job.training_dir):
        return found
    try:
        try_out()
    except (errors.TaskFailedError, errors.TaskStalledError) as error:
        first_line = error.what.splitlines()[0][:_REASON]
        speed_trial.write(job.training_dir, speed_trial.fall_back(section, first_line))
    return speed_trial.read(job.training_dir)


def wait_for_verdict(job: Job, seconds: float, stopped: Callable[[], bool]) -> Optional[Verdict]:
    """Waits for the verdict of the chief of somebody else's cluster, which has the same training folder.

    Args:
        job: What to train.
        seconds: At most.
        stopped: Says that there is nothing more to wait for.

    Returns:
        The verdict; None if it was stopped.

    Raises:
        TaskStalledError: There is none in time.
    """
    deadline = time.monotonic() + seconds
    while not (found := speed_trial.read(job.training_dir)):
        if stopped():
            return None
        if time.monotonic() > deadline:
            raise errors.TaskStalledError(
                f"the chief of this cluster has not decided on what is declared as auto, in {job.training_dir}",
                expected=f"{speed_trial.FILE} there within {seconds:g} s (trainer.start_timeout and stall_timeout)",
                todo="see the chief's log; or declare trainer.precision and trainer.xla",
            )
        time.sleep(poll_seconds(job.training_dir, _POLL_SECONDS))
    return found


def with_verdict(job: Job, verdict: Verdict) -> Job:
    """Returns the job with what is decided in the place of `auto`.

    Args:
        job: What to train.
        verdict: Of its trial.
    """
    settings = Settings.from_dict(job.settings)
    section = settings.trainer
    assert section is not None
    assert settings.declaration is not None
    decided = {name: getattr(verdict.way, name) for name in section.undecided}
    trainer = {**settings.declaration["trainer"], **decided}
    settings = dataclasses.replace(settings, declaration={**settings.declaration, "trainer": trainer})
    return dataclasses.replace(job, settings=settings.to_dict())
