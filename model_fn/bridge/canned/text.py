"""Formatting of written Python source."""

from __future__ import annotations

import itertools
import re
from typing import Any

WIDTH = 110
_STEP = " " * 4
# Maximum length of list items that share a line.
_SHORT = 16


def call(name: str, /, *args: Any, **kwargs: Any) -> str:
    """Returns the source of a call."""
    given = [literal(each) for each in args] + [f"{key}={literal(each)}" for key, each in kwargs.items()]
    return f"{name}({', '.join(given)})"


class Source(str):
    """Text that is source already."""

    __slots__ = ()


def literal(value: Any) -> str:
    """Returns the source of a value, on one line."""
    if isinstance(value, Source):
        return str(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f"{value:.1f}"
    if isinstance(value, str):
        text = repr(str(value))
        return text if set(value) & set("'\"") else f'"{text[1:-1]}"'
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(literal, value))})"
    return repr(value)


def indented(lines: list[str], margin: str = _STEP) -> str:
    """Returns lines of a function, with long ones broken within brackets."""
    return "\n".join(row for line in lines for row in _broken(line, margin))


def _broken(line: str, margin: str) -> list[str]:
    """Breaks a line at its longest brackets, and indents their content on the following lines."""
    line, own = line.lstrip(), margin + line[: len(line) - len(line.lstrip())]
    if len(own + line) <= WIDTH:
        return [own + line]
    begin, end, commas = _longest_brackets(line)
    if end - begin < 3:
        return [own + line]
    cuts = [begin + 1, *(each + 1 for each in commas), end]
    items = [line[one:two].strip() for one, two in itertools.pairwise(cuts)]
    inner = own + _STEP
    if len(together := inner + line[begin + 1 : end].strip()) <= WIDTH and len(items) > 1:
        body = [together]
    elif all(len(each) <= _SHORT for each in items):
        body = [""]
        for each in items:
            if len(inner) + len(body[-1]) + len(each) > WIDTH:
                body.append("")
            body[-1] += f" {each}" if body[-1] else each
        body = [inner + each for each in body]
    else:
        body = [row for each in items for row in _broken(each, inner)]
        # Within parentheses alone a comma makes a tuple.
        is_group = line[begin] == "(" and not re.search(r"[\w\])]$", line[:begin])
        if not body[-1].endswith(",") and (len(items) > 1 or not is_group):
            body[-1] += ","
    return [own + line[: begin + 1], *body, own + line[end:]]


def _longest_brackets(line: str) -> tuple[int, int, list[int]]:
    """Returns the positions of the longest outermost brackets, and of the commas directly in them."""
    found: tuple[int, int, list[int]] = (0, 0, [])
    opened, depth, quote, commas, escaped = 0, 0, "", list[int](), False
    for index, char in enumerate(line):
        if quote:
            quote = "" if char == quote and not escaped else quote
            escaped = char == "\\" and not escaped
        elif char in "'\"":
            quote = char
        elif char in "([{":
            opened, commas = (index, []) if not depth else (opened, commas)
            depth += 1
        elif char in ")]}":
            depth -= 1
            if not depth and index - opened > found[1] - found[0]:
                found = (opened, index, commas)
        elif char == "," and depth == 1:
            commas.append(index)
    return found
