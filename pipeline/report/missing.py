"""What a report has to leave out, and why."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfx_estimator.pipeline.base.errors import TfxEstimatorError

_LONGEST = 300


class LeftOutError(Exception):
    """A part of a report cannot be made of this run; the text is the one sentence that says why."""


@dataclass(frozen=True)
class Missing:
    """Stands in for a part that was left out."""

    why: str


def attempt(make: Callable[..., Any], *args: Any) -> Any:
    """Makes a part of a report.

    Args:
        *args: Its arguments; one that is missing itself makes the part missing too.

    Returns:
        The part, or a `Missing`: whatever a user's model or data may be, the rest of the report is made.
    """
    gone = next((each for each in args if isinstance(each, Missing)), None)
    if gone is not None:
        return gone
    try:
        return make(*args)
    except LeftOutError as reason:
        return Missing(str(reason))
    except TfxEstimatorError as error:
        return Missing(f"It could not be made: {error.what}.")
    except Exception as error:
        logging.getLogger(__name__).exception("a part of the report could not be made")
        return Missing(f"It could not be made: {type(error).__name__}: {str(error)[:_LONGEST]}")
