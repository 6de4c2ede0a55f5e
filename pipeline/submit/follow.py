"""Follows a job to its end, whatever becomes of the connection."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.submit.job import Look, LostError, Service

# How long the service may not answer: a job that is followed, and one that is started.
PATIENCE_SECONDS, START_SECONDS = 900.0, 120.0
POLL_SECONDS = 5.0
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 30.0

_Told = TypeVar("_Told")
# Shows a line; whether it is a warning.
Say = Callable[[str, bool], None]


def follow(service: Service, job: str, say: Say) -> Look:
    """Follows a job.

    Raises:
        TfxEstimatorError: It did not succeed, or the service does not answer.
    """
    before = ""
    tasks: dict[str, str] = {}
    while True:
        look = patiently(lambda: service.look(job), say, PATIENCE_SECONDS)
        for task, state in look.tasks.items():
            if tasks.get(task) != state:
                tasks[task] = state
                say(f"{_now()}  {task}: {state}", False)
        for line in look.lines:
            say(f"    {line}", False)
        for notice in look.notices:
            say(notice, True)
        if look.state != before:
            before = look.state
            say(f"{_now()}  {job}: {look.state}", False)
        if look.error is not None:
            raise look.error
        if look.ended:
            return look
        time.sleep(POLL_SECONDS)


def patiently(ask: Callable[[], _Told], say: Say, seconds: float) -> _Told:
    """Asks a service; that it does not answer for a while is borne.

    Args:
        say: Is told that it does not, and that it does again.

    Raises:
        PipelineError: It took longer, or the service refuses.
    """
    lost_at, wait, is_lost = 0.0, _FIRST_WAIT, False
    while True:
        try:
            told = ask()
        except LostError as error:
            # Counts from the first failed request, because a single request may take long by itself.
            if not is_lost:
                lost_at = time.monotonic()
            waited = time.monotonic() - lost_at
            if waited > seconds:
                raise PipelineError(
                    f"the service has not answered for {waited:.0f} s: {error}",
                    expected="an answer; a job that was started goes on meanwhile",
                    todo="run the same again when it does: what was submitted is found, and not started twice",
                ) from error
            if not is_lost:
                say(f"the service does not answer: {error}; trying again", True)
            is_lost = True
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)
        else:
            if is_lost:
                say("the service answers again", True)
            return told


def _now() -> str:
    return time.strftime("%H:%M:%S")
