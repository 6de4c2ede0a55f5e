"""Where a comparison writes, and what may be asked of it; imports no TensorFlow."""

from __future__ import annotations

from typing import Optional

from tfx_estimator.pipeline.base.errors import DeclarationError, NotEqualError

FILES = JSON_FILE, HTML_FILE = "compare.json", "compare.html"
_OPTION = "--require-equal"


def check_points(points: Optional[float]) -> None:
    """Checks what `--require-equal` asks for.

    Args:
        points: Of 100; None asks for nothing.

    Raises:
        DeclarationError: This is no difference of accuracies.
    """
    if points is not None and not 0 <= points <= 100:
        raise DeclarationError(
            f"{_OPTION} {points:g}: this is out of range",
            expected="points of accuracy from 0 to 100: 0.5, for example",
            todo="name how far the accuracies may lie apart",
        )


def require_equal(spread: float, points: Optional[float]) -> None:
    """Refuses accuracies that lie too far apart.

    Args:
        spread: Between the highest and the lowest, in points of 100.
        points: That they may lie apart; None is any number.

    Raises:
        NotEqualError: They lie further apart.
    """
    # The tolerance is for rounding: accuracies are quotients.
    if points is not None and spread > points + 1e-9:
        raise NotEqualError(
            f"the accuracies lie {spread:.2f} points apart",
            expected=f"at most {points:g}, as of {_OPTION}",
            todo=f"see {HTML_FILE}: which classes and examples differ",
        )
