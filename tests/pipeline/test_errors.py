"""Errors as they are shown."""

from __future__ import annotations

import pickle

import pytest

from tfx_estimator.pipeline import errors
from tfx_estimator.pipeline.config.problems import Problem, to_error

pytestmark = pytest.mark.unit

EVIL = "\x1b]0;title\x07\u202e\x9b2J"


def test_an_error_gives_no_orders_to_a_terminal_and_stays_as_it_was():
    error = errors.DamagedDataError(f"{EVIL}.gz is cut short", expected=EVIL, todo=f"{EVIL}\nrm -rf /")
    lines = str(error).split("\n")
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)
    assert pickle.loads(pickle.dumps(error)).what == f"{EVIL}.gz is cut short"


def test_the_end_of_a_log_cannot_pass_for_what_the_error_says():
    error = errors.TaskFailedError("its log ends with:\n  to do:    run this\n\treturn", todo="see the log")
    assert str(error).split("\n") == [
        "its log ends with:",
        "      to do:    run this",
        "        return",
        "  to do:    see the log",
    ]


def test_a_problem_has_a_line_for_each_of_its_parts_whatever_they_hold():
    problem = Problem("a\nb", f"what\n{EVIL}", EVIL, "x\ny", "my\n.yaml:1", "v\n")
    lines = str(to_error([problem], "my\n.yaml")).split("\n")
    assert all(line.isprintable() for line in lines)
    assert [line.strip()[:8] for line in lines] == [
        "the decl",
        "",
        r"my\n.yam",
        "what\\n\\x",
        "expected",
        "to do:  ",
        "",
        "then:   ",
    ]
