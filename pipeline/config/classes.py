"""The order of a data set's classes, and which of them a declaration means."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Optional, Union


def in_form(name: str) -> str:
    """Returns the one form of a name that Unicode writes in several: file systems and editors differ in theirs."""
    return unicodedata.normalize("NFC", name)


def in_order(names: Iterable[str]) -> list[str]:
    """The classes in the order of their labels: by number where all are numbers, else alphabetical."""
    found = sorted(set(map(in_form, names)))
    return sorted(found, key=lambda name: (len(_digits(name)), _digits(name))) if all(map(_is_number, found)) else found


def find_label(value: Union[int, str], names: Sequence[str]) -> Optional[int]:
    """Returns the label of the class that is meant by its name; or by its label, where the names are no numbers.

    Args:
        value: A name, or a number.
        names: The classes, in the order of their labels.

    Returns:
        None where there is no such class.
    """
    text = in_form(str(value))
    if text in names:
        return list(names).index(text)
    numbers = [_digits(name) for name in names] if all(map(_is_number, names)) else list(map(str, range(len(names))))
    return numbers.index(_digits(text)) if _is_number(text) and _digits(text) in numbers else None


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()


def _digits(number: str) -> str:
    # As text: Python makes no number of some thousand digits.
    return number.lstrip("0") or "0"
