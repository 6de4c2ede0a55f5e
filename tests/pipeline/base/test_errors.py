"""Errors and foreign text, made safe for a terminal."""

from __future__ import annotations

import json
import pickle

import pytest

from tfx_estimator.pipeline.base import errors
from tfx_estimator.pipeline.base.text import duration, first_line, one_line, printable

EVIL = "\x1b]0;title\x07\u202e\x9b2J"


def test_an_error_prints_no_terminal_escapes_and_stays_unchanged():
    error = errors.DamagedDataError(f"{EVIL}.gz is cut short", expected=EVIL, todo=f"{EVIL}\nrm -rf /")
    lines = str(error).split("\n")
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)
    assert pickle.loads(pickle.dumps(error)).what == f"{EVIL}.gz is cut short"


def test_the_end_of_a_log_cannot_pass_for_the_error_itself():
    error = errors.TaskFailedError("its log ends with:\n  to do:    run this\n\treturn", todo="see the log")
    assert str(error).split("\n") == [
        "its log ends with:",
        "      to do:    run this",
        "        return",
        "  to do:    see the log",
    ]


class _OwnError(errors.TaskFailedError):
    """An error of a class that no other process knows."""


def _marked(error: errors.TfxEstimatorError) -> errors.TfxEstimatorError:
    error.retryable = True
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.UserCodeError("what", expected="that", todo="mend it"), errors.UserCodeError),
        (_marked(errors.TrainingError("a checkpoint cannot be read")), errors.TrainingError),
        (errors.StoppedError("at a checkpoint", exit_code=130), errors.StoppedError),
        (_OwnError("what"), errors.TaskFailedError),
    ],
)
def test_an_error_is_the_same_in_another_process(error, kind):
    restored = errors.from_json(json.loads(json.dumps(errors.to_json(error))))
    assert type(restored) is kind
    assert str(restored) == str(error)
    assert (restored.retryable, restored.exit_code) == (error.retryable, error.exit_code)


def test_all_terminal_escapes_are_removed():
    every = "".join(map(chr, [*range(0x300), *range(0x2000, 0x2100), 0xD800, 0xFEFF, 0x1F600]))
    assert all(character.isprintable() or character == "\n" for character in printable(every))
    assert one_line(every).isprintable()
    assert printable("é 日本 😀") == one_line("é 日本 😀") == "é 日本 😀"


def test_newlines_are_kept_except_in_single_line_text():
    assert printable("a\r\n\tb\x1b[0m\r") == "a\n    b\\x1b[0m\\r"
    assert one_line("a\n\tb") == r"a\n\tb"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.04, "0.0 s"), (1.2, "1 s"), (59.7, "1 min 00 s"), (185, "3 min 05 s"), (7800, "2 h 10 min")],
)
def test_a_duration_is_worded_for_people(seconds, words):
    assert duration(seconds) == words


def test_every_error_has_a_line():
    assert first_line(ValueError("\none\ntwo")) == "one"
    assert first_line(ValueError()) == "ValueError"
