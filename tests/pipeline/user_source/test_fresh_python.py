"""A fresh interpreter finds what this one does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tfx_estimator.pipeline.user_source import loader

pytestmark = pytest.mark.unit

TELL = (
    "import json, sys, tfx_estimator, own_of_a_colon; "
    "print(json.dumps([sys.path, tfx_estimator.__file__, own_of_a_colon.NAME, sys.argv[1:]]))"
)


def test_it_finds_the_same_modules_in_the_same_order(tmp_path, monkeypatch):
    import tfx_estimator

    folder = tmp_path / "with:colon"
    folder.mkdir()
    (folder / "own_of_a_colon.py").write_text("NAME = 'own'\n")
    # Of a current folder that holds what would hide another, if it came first.
    (tmp_path / "json.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    # As in a process that has imported nothing of a user's yet: what comes into `sys.path` after that is a user's.
    monkeypatch.setattr(sys, "path_hooks", [hook for hook in sys.path_hooks if hook is not loader._find_in])
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path, "", str(folder), Path("no text")])
    environment = {**os.environ, "PYTHONPATH": loader.python_path()}
    command = [*loader.fresh_python(TELL), "argument"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found, package, name, arguments = json.loads(done.stdout)
    assert found == list(dict.fromkeys(path or str(tmp_path) for path in sys.path if isinstance(path, str)))
    assert (package, name, arguments) == (tfx_estimator.__file__, "own", ["argument"])
    # What that one starts finds all but the folder with a colon.
    assert loader.python_path().split(":") == [path for path in found if ":" not in path]
