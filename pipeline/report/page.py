"""Renders pages; a part that cannot be made is replaced by the reason."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from tfx_estimator.pipeline.base.errors import TfxEstimatorError
from tfx_estimator.pipeline.base.text import duration, one_line, printable

_A_MINUTE = 60
_LONGEST = 300


class LeftOutError(Exception):
    """A part of a report cannot be made of this run; the text is one sentence with the reason."""


@dataclass(frozen=True)
class Missing:
    """Placeholder for a part that was left out."""

    why: str


def attempt(make: Callable[..., Any], *args: Any) -> Any:
    """Makes a part of a page; returns Missing if an argument is Missing, or for any error, so that the rest is made."""
    missing = next((each for each in args if isinstance(each, Missing)), None)
    if missing is not None:
        return missing
    try:
        return make(*args)
    except LeftOutError as reason:
        return Missing(str(reason))
    except TfxEstimatorError as error:
        return Missing(f"It could not be made: {error.what}.")
    except Exception as error:
        logging.getLogger(__name__).exception("a part of the report could not be made")
        return Missing(f"It could not be made: {type(error).__name__}: {str(error)[:_LONGEST]}")


def render(template: str, package: str = "tfx_estimator.pipeline.report", **values: Any) -> str:
    """Renders a package's template; values are escaped in HTML, and in Markdown by the filter `cell`."""
    loader = PackageLoader(package, ".")
    environment = Environment(
        loader=loader, autoescape=".html" in template, finalize=_finalize, trim_blocks=True, lstrip_blocks=True
    )
    environment.tests["missing"] = lambda value: isinstance(value, Missing)
    environment.filters.update(seconds=show_seconds, percent=show_percent, number=show_number, cell=_cell)
    return environment.get_template(template).render(**values)


def show_seconds(seconds: float) -> str:
    """Formats a duration, to a tenth of a second if it is short."""
    return f"{seconds:.1f} s" if seconds < _A_MINUTE else duration(seconds)


def show_percent(share: float | None, digits: int = 1) -> str:
    """Formats a share of 1 in percent; a dash for None."""
    return "—" if share is None else f"{100 * share:.{digits}f} %"


def show_number(value: float | None) -> str:
    """Formats a number with four significant digits and thousands separators; a dash for None."""
    if value is None:
        return "—"
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _cell(text: Any) -> str:
    """Escapes what would be markup in a table of Markdown, which may contain HTML."""
    return one_line(str(text)).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")


def _finalize(value: Any) -> Any:
    return value if isinstance(value, Markup) else printable(str(value))
