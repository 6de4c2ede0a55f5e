"""Errors of libraries and user code, explained as PipelineError."""

from __future__ import annotations

import errno
import os
import runpy
from pathlib import Path

import pytest

from tfx_estimator.pipeline.base import errors
from tfx_estimator.pipeline.run.explain import explain


def test_the_projects_own_error_is_found_as_the_cause_of_another():
    ours = errors.DamagedDataError("train.gz is truncated")
    beams = RuntimeError("[while running 'Write']")
    beams.__cause__ = ours
    assert explain(beams, "TfdsExampleGen", "run.log") is ours


def test_a_library_error_names_the_component_and_the_log():
    error = explain(KeyError("x"), "Transform", "run.log")
    assert isinstance(error, errors.PipelineError)
    assert str(error).startswith("component Transform failed: KeyError: 'x'\n  expected:")
    assert str(error).endswith("see run.log")


def test_long_and_binary_texts_are_shortened():
    message = str(explain(ValueError("\x00\x01" * 5000), "Evaluator", "run.log"))
    assert len(message) < 900
    assert "\x00" not in message
    assert "the log has all" in message


def test_an_error_in_the_users_code_is_reported_with_its_line(tmp_path: Path):
    path = tmp_path / "own_preprocessing.py"
    path.write_text("def preprocessing_fn(inputs):\n    raise ValueError('my own mistake')\n")
    with pytest.raises(ValueError, match="my own mistake") as raised:
        runpy.run_path(str(path))["preprocessing_fn"]({})
    # Without this test's frame, which would count as user code.
    error = raised.value.with_traceback(raised.value.__traceback__.tb_next)
    explained = explain(error, "Transform", "run.log")
    assert isinstance(explained, errors.UserCodeError)
    assert "my own mistake" in str(explained)
    assert f'File "{path}", line 2, in preprocessing_fn' in str(explained)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/gone/file"),
        RuntimeError("/tmp/gone/file; No space left on device [while running 'Write']"),
        RuntimeError("Error when executing query: database or disk is full query:  INSERT INTO `Attribution`"),
    ],
    ids=["python", "tensorflow", "database"],
)
def test_a_full_disk_is_reported(monkeypatch, error):
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    explained = explain(error, "Transform", "/tmp/no-such-run/pipeline.log")
    assert isinstance(explained, errors.PipelineError)
    assert explained.what == "component Transform failed: the disk of /tmp is full"
    assert "cache" in explained.todo
