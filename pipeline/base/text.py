"""Text for people, with escaped control characters. Standard library only."""

from __future__ import annotations

import re

_SECONDS_A_MINUTE = 60
_TAB = " " * 4
# TensorFlow's text of a failed operation: the stack that created it, including TensorFlow's own lines, once or twice.
_MADE = re.compile(
    r"(?:Graph execution error:\s*)?Detected at node .+ defined at \(most recent call last\):\n"
    r"(?:(?: .*|<.*>)?\n)*(?:Node: .+\n)?"
)
_MADE_AGAIN = "\n\nOriginal stack trace for "


def printable(text: str) -> str:
    """Escapes control and other unprintable characters; keeps line breaks, and replaces tabs by spaces."""
    text = text.replace("\r\n", "\n").replace("\t", _TAB)
    return text if text.isprintable() else "".join(c if c == "\n" or c.isprintable() else _escape(c) for c in text)


def one_line(text: str) -> str:
    """Escapes unprintable characters, including line breaks and tabs, for example of a name."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, without stacks; its type's name if the message is empty."""
    # Of a checkpoint that does not fit, TensorFlow tells the reason last.
    text = without_stacks(str(error).rpartition("Original error:")[2])
    return (text.strip().splitlines() or [type(error).__name__])[0]


def without_stacks(text: str) -> str:
    """Removes the stacks from TensorFlow's text of a failed operation: `user_lines` has the user's lines."""
    shown = _MADE.sub("", text.partition(_MADE_AGAIN)[0])
    return text if shown == text else shown.strip() or text


def duration(seconds: float) -> str:
    """Formats a duration for people: `0.4 s`, `42 s`, `3 min 05 s`, `2 h 10 min`."""
    if seconds < 1:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), _SECONDS_A_MINUTE)
    hours, minutes = divmod(minutes, _SECONDS_A_MINUTE)
    if hours:
        return f"{hours:,} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
