"""Errors as they are shown."""

from __future__ import annotations

import json
import pickle

import pytest

from tfx_estimator.pipeline.base import errors

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


class _OwnError(errors.TaskFailedError):
    """Of no module that another process knows."""


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
    told = errors.from_json(json.loads(json.dumps(errors.to_json(error))))
    assert type(told) is kind
    assert str(told) == str(error)
    assert (told.retryable, told.exit_code) == (error.retryable, error.exit_code)
