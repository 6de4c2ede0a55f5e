"""Fills the page."""

from __future__ import annotations

import math
import unicodedata
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from tfx_estimator.pipeline.report.missing import Missing

# Others would be seen by nobody, or turn text around; line ends and tabs are fine, and so are the joiners of scripts.
_UNSEEN = ("Cc", "Cf", "Cs", "Cn")
_SEEN = "\n\t\u200c\u200d"


def render(template: str, **values: Any) -> str:
    """Fills a template.

    Args:
        template: Its file, in this folder.
        **values: What it is given; text is escaped.

    Returns:
        A page that refers to nothing outside of it.
    """
    loader = PackageLoader("tfx_estimator.pipeline.report", ".")
    environment = Environment(loader=loader, autoescape=True, finalize=_finalize, trim_blocks=True, lstrip_blocks=True)
    environment.tests["missing"] = lambda value: isinstance(value, Missing)
    environment.filters.update(seconds=show_seconds, percent=show_percent, number=show_number)
    return environment.get_template(template).render(**values)


def make_visible(text: str) -> str:
    """Returns a text with its control characters as Python writes them: an error or a name may hold any."""
    return "".join(_escaped(character) for character in text)


def show_seconds(seconds: float) -> str:
    """Returns a time as a person says it."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


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
    return value if isinstance(value, Markup) else make_visible(str(value))


def _escaped(character: str) -> str:
    if character in _SEEN or unicodedata.category(character) not in _UNSEEN:
        return character
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")
