"""Fills the page."""

from __future__ import annotations

import math
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from tfx_estimator.pipeline.base.text import duration, printable
from tfx_estimator.pipeline.report.missing import Missing

_A_MINUTE = 60


def render(template: str, **values: Any) -> str:
    """Fills a template.

    Args:
        **values: What it is given; text is escaped.

    Returns:
        A page that refers to nothing outside of it.
    """
    loader = PackageLoader("tfx_estimator.pipeline.report", ".")
    environment = Environment(loader=loader, autoescape=True, finalize=_finalize, trim_blocks=True, lstrip_blocks=True)
    environment.tests["missing"] = lambda value: isinstance(value, Missing)
    environment.filters.update(seconds=show_seconds, percent=show_percent, number=show_number)
    return environment.get_template(template).render(**values)


def show_seconds(seconds: float) -> str:
    """Returns a time as a person says it, a short one to a tenth of a second."""
    return f"{seconds:.1f} s" if seconds < _A_MINUTE else duration(seconds)


def show_percent(share: float | None, digits: int = 1) -> str:
    """Returns a share of 1 in percent; a dash where there is none."""
    return "—" if share is None else f"{100 * share:.{digits}f} %"


def show_number(value: float | None) -> str:
    """Returns a number with four significant digits, and its thousands apart."""
    if value is None:
        return "—"
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _finalize(value: Any) -> Any:
    return value if isinstance(value, Markup) else printable(str(value))
