"""Foreign text as a person may see it."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.base.text import duration, first_line, one_line, printable

pytestmark = pytest.mark.unit


def test_nothing_is_left_that_a_terminal_would_obey():
    every = "".join(map(chr, [*range(0x300), *range(0x2000, 0x2100), 0xD800, 0xFEFF, 0x1F600]))
    assert all(character.isprintable() or character == "\n" for character in printable(every))
    assert one_line(every).isprintable()
    assert printable("é 日本 😀") == one_line("é 日本 😀") == "é 日本 😀"


def test_lines_stay_lines_but_where_one_is_meant():
    assert printable("a\r\n\tb\x1b[0m\r") == "a\n    b\\x1b[0m\\r"
    assert one_line("a\n\tb") == r"a\n\tb"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.04, "0.0 s"), (1.2, "1 s"), (59.7, "1 min 00 s"), (185, "3 min 05 s"), (7800, "2 h 10 min")],
)
def test_a_duration_is_told_as_a_person_says_it(seconds, words):
    assert duration(seconds) == words


def test_of_an_error_there_is_always_a_line():
    assert first_line(ValueError("one\ntwo")) == "one"
    assert first_line(ValueError()) == "ValueError"
