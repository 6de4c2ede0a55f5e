"""Days of a table: files whose pattern holds {SPAN}, or {YYYY}, {MM} and {DD}, as TFX's ExampleGen takes them.

Source: https://www.tensorflow.org/tfx/guide/examplegen#span.
"""

from __future__ import annotations

import datetime
import glob
import os
import re
from collections.abc import Iterable, Sequence

_TOKEN = re.compile(r"\{(SPAN|VERSION)(?::(\d+))?\}|\{(YYYY|MM|DD)\}")
_EPOCH = datetime.date(1970, 1, 1)
_WILD = {"*": "[^/]*", "?": "[^/]"}
_GROUP = re.compile(r"\{([^{}]*,[^{}]*)\}")


def has_spans(pattern: str) -> bool:
    """Returns whether a pattern tells days apart."""
    return _TOKEN.search(pattern) is not None


def wrong_tokens(pattern: str) -> str:
    """Returns why TFX would not take a pattern's tokens; empty if it does."""
    found = sorted(match[1] or match[3] for match in _TOKEN.finditer(pattern))
    if [name for name in found if name != "VERSION"] not in (["SPAN"], ["DD", "MM", "YYYY"]):
        return "a day is neither one {SPAN} nor one {YYYY}, {MM} and {DD}"
    if re.search(r"[*?\]]\{SPAN\}|\{SPAN\}[*?\[]", pattern):
        return "a wildcard beside {SPAN} takes the digits of other days as well"
    return "{VERSION} stands in it twice" if found.count("VERSION") > 1 else ""


def find_spans(folder: str, pattern: str) -> dict[int, str]:
    """Returns the pattern of each day's files, in its newest version, in the order of the days."""
    tokens = [match[1] or match[3] for match in _TOKEN.finditer(pattern)]
    known = re.compile(_to_regex(pattern), re.DOTALL)
    newest: dict[int, tuple[int, str]] = {}
    for path in glob.glob(os.path.join(glob.escape(folder), _TOKEN.sub("*", pattern))):
        match = known.fullmatch(os.path.relpath(path, folder))
        span = _span(dict(zip(tokens, map(int, match.groups())))) if match else None
        if match is None or span is None:
            continue
        version = int(match[tokens.index("VERSION") + 1]) if "VERSION" in tokens else 0
        newest[span] = max(newest.get(span, (-1, "")), (version, _fill(pattern, match.groups())))
    return {span: newest[span][1] for span in sorted(newest)}


def _fill(pattern: str, values: Sequence[str]) -> str:
    left = iter(values)
    return _TOKEN.sub(lambda _: next(left), pattern)


def _to_regex(pattern: str) -> str:
    parts = []
    for text in re.split(r"(\{[^{}]*\}|[*?]|\[[^\]]+\])", pattern):
        if match := _TOKEN.fullmatch(text):
            width = {"YYYY": "4", "MM": "2", "DD": "2"}.get(match[3] or "", match[2])
            # TFX finds no files of a number with zeros before it, unless its width is given.
            parts.append(rf"(\d{{{width}}})" if width else r"(0|[1-9]\d*)")
        else:
            is_set = len(text) > 2 and text[0] == "["
            parts.append(text.replace("[!", "[^", 1) if is_set else _WILD.get(text) or re.escape(text))
    return "".join(parts)


def _span(values: dict[str, int]) -> int | None:
    """Returns the number that TFX gives to a day: of a date, the days since 1970; None if there is no such date."""
    if "SPAN" in values:
        return values["SPAN"]
    try:
        return (datetime.date(values["YYYY"], values["MM"], values["DD"]) - _EPOCH).days
    except ValueError:
        return None


def join_patterns(pattern: str, days: Iterable[str]) -> str:
    """Returns one pattern of several days: `day-{1,2}/*.csv` of `day-{SPAN}/*.csv`."""
    tokens = [*_TOKEN.finditer(pattern)]
    head, tail = tokens[0].start(), len(pattern) - tokens[-1].end()
    middles = [day[head : len(day) - tail] for day in days]
    return (
        pattern[:head]
        + (middles[0] if len(middles) == 1 else f"{{{','.join(middles)}}}")
        + pattern[len(pattern) - tail :]
    )


def split_pattern(pattern: str) -> Sequence[str]:
    """Returns the patterns of `join_patterns`, one a day; else the pattern itself."""
    match = _GROUP.search(pattern)
    return (
        [pattern[: match.start()] + each + pattern[match.end() :] for each in match[1].split(",")]
        if match
        else [pattern]
    )
