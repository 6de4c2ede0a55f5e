"""Our processes ignore a foreign choice of Keras in the environment."""

from __future__ import annotations

import importlib.util

import pytest

from tests.root import run_python
from tests.stack import HERE
from tfx_estimator.pipeline.base.environment import without_other_keras
from tfx_estimator.pipeline.base.stack.stacks import KERAS, LEGACY

# A wrong value here, and the value in our processes.
WRONG, CHOSEN = ("1", None) if HERE is LEGACY else ("0", "1")


@pytest.mark.parametrize("value", ["1", "true", "True"])
def test_legacy_keras_is_kept_where_it_is_installed(monkeypatch, value):
    given = {KERAS: value, "HOME": "/"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert without_other_keras(given) == {"HOME": "/"}
    assert without_other_keras({KERAS: "0"}) == {KERAS: "0"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert without_other_keras(given) == given
    assert without_other_keras({KERAS: "0"}) == {}


@pytest.mark.parametrize(("wrong", "warnings"), [({KERAS: WRONG}, 1), ({}, 0)])
def test_the_command_line_warns_and_its_process_can_import_tensorflow(wrong, warnings):
    code = (
        "import os, sys\n"
        "from tfx_estimator import __main__ as command_line\n"
        "from tfx_estimator.pipeline.commands import show\n"
        "def work(args):\n"
        "    print(os.environ.get('TF_USE_LEGACY_KERAS'))\n"
        "    return 0\n"
        "show.run = work\n"
        "sys.argv = ['tfx-estimator', 'show', 'digits']\n"
        "sys.exit(command_line.main())\n"
    )
    done = run_python("-c", code, **wrong)
    assert (done.returncode, done.stdout) == (0, f"{CHOSEN}\n"), done.stderr
    assert done.stderr.count(f"tfx-estimator: {KERAS} is ignored: ") == warnings


def test_a_task_in_a_users_own_pipeline_ignores_it(monkeypatch):
    from tfx_estimator.components.trainer.protocol.task_spec import TaskSpec
    from tfx_estimator.components.trainer.supervisor.process import _inherited

    monkeypatch.setenv(KERAS, WRONG)
    assert KERAS not in _inherited(TaskSpec("chief", 0, 1))
