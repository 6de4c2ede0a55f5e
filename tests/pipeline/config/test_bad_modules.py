"""Declarations that name a module which cannot be."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.config import load

pytestmark = pytest.mark.unit


MODULE_FILES = [
    ("def other(): pass\ndef _hidden(): pass\n", ["it defines _hidden, other", "define trainer_fn or run_fn"]),
    ("def runfn(fn_args): pass\n", ["it defines runfn", "rename `runfn`"]),
    ("x = 1\n", ["it defines no function"]),
    ("def run_fn(:\n", ["mod.py:1 does not parse", "correct the file"]),
    ("x = '\0'\n", ["does not parse"]),
    ("class A:\n    def run_fn(self): pass\n", ["it defines no function"]),
]


@pytest.mark.parametrize(("text", "parts"), MODULE_FILES)
def test_a_wrong_module_file(refuse, tmp_path, good, text, parts):
    (tmp_path / "mod.py").write_text(text)
    message = refuse(good.replace("model: mnist_cnn", "module_file: mod.py"))
    assert "mine.yaml:6  trainer.module_file: " in message
    for part in parts:
        assert part in message


def test_module_files_that_are_missing(refuse, tmp_path, good):
    (tmp_path / "taxi_utils.py").write_text("from elsewhere import *\n")
    with_file = good.replace("model: mnist_cnn", "module_file: FILE")
    assert "did you mean `taxi_utils.py`?" in refuse(with_file.replace("FILE", "taxi_util.py"))
    # What a star brings in cannot be known: the file is taken.
    assert load("mine.yaml", ["trainer.module_file=taxi_utils.py"]).declaration.trainer.model is None


def test_a_model_in_a_file_that_does_not_parse(refuse, tmp_path, good):
    (tmp_path / "mynets.py").write_text("def net(:\n")
    assert "mynets.py:1 does not parse" in refuse(good.replace("mnist_cnn", "mynets:net"))
