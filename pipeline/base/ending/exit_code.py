"""What a process ends with: the message of an error of this project's on stderr, and its exit code."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Optional

from tfx_estimator.pipeline.base.ending import signals
from tfx_estimator.pipeline.base.errors import TfxEstimatorError, exit_code_of


def of(work: Callable[[], Optional[int]]) -> int:
    """Does the work of a process.

    Args:
        work: Does it; None is 0.

    Returns:
        The exit code: that of the work; of an error of this project's, which is printed; or of a signal.
    """
    try:
        return work() or 0
    except TfxEstimatorError as error:
        _say(error)
        return exit_code_of(error)
    except signals.SignalledError as end:
        _say(end)
        return end.exit_code


def _say(end: BaseException) -> None:
    # Nobody may be there to read it; the exit code says it as well.
    with contextlib.suppress(OSError):
        print(end, file=sys.stderr, flush=True)  # noqa: T201
