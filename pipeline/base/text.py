"""Text for people, with escaped control characters. Standard library only."""

from __future__ import annotations

_SECONDS_A_MINUTE = 60
_TAB = " " * 4


def printable(text: str) -> str:
    """Escapes control and other unprintable characters; keeps line breaks, and replaces tabs by spaces."""
    text = text.replace("\r\n", "\n").replace("\t", _TAB)
    return text if text.isprintable() else "".join(c if c == "\n" or c.isprintable() else _escape(c) for c in text)


def one_line(text: str) -> str:
    """Escapes unprintable characters, including line breaks and tabs, for example of a name."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message; its type's name if the message is empty."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


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
