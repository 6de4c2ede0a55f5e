"""The terminal output of a run."""

from __future__ import annotations

import errno

import pytest
from rich.console import Console

from tests.root import run_python, start_python
from tfx_estimator.pipeline.base import errors
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.run import console
from tfx_estimator.pipeline.run import view as module
from tfx_estimator.pipeline.runners.listener import NodeRun


def test_output_of_libraries_goes_to_the_log_and_the_rest_to_the_terminal(tmp_path):
    code = (
        "import os, sys\n"
        "from tfx_estimator.pipeline.run.terminal import quiet\n"
        "with quiet(sys.argv[1]) as terminal:\n"
        "    print('from python')\n"
        "    os.write(2, b'from c\\n')\n"
        "    print('for the person', file=terminal)\n"
        "print('after')\n"
    )
    log = tmp_path / "run.log"
    done = run_python("-c", code, str(log))
    assert (done.returncode, done.stdout, done.stderr) == (0, "for the person\nafter\n", "")
    assert log.read_text() == "from python\nfrom c\n" or log.read_text() == "from c\nfrom python\n"


def test_a_run_continues_when_the_reader_of_its_output_leaves(tmp_path):
    code = (
        "import sys\n"
        "from rich.console import Console\n"
        "from tfx_estimator.pipeline.run.view import View\n"
        "from tfx_estimator.pipeline.run.terminal import quiet\n"
        "with quiet(sys.argv[1]) as terminal:\n"
        "    view = View(Console(file=terminal, width=200))\n"
        "    view.warn('read')\n"
        "    sys.stdin.readline()\n"
        "    for number in range(1000):\n"
        "        view.warn(f'unread {number}')\n"
        "    view.close()\n"
        "print('done', file=sys.stderr)\n"
    )
    log = tmp_path / "run.log"
    with start_python("-c", code, str(log)) as child:
        assert child.stdout.readline().split() == ["warning", "read"]
        child.stdout.close()
        _, stderr = child.communicate("go on\n", timeout=30)
    assert (child.returncode, stderr) == (0, "done\n")
    assert [line.split()[-1] for line in log.read_text().splitlines()] == [str(number) for number in range(1000)]


def test_progress_is_printed_as_lines_without_a_terminal(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_PROGRESS_SECONDS", 0.0)
    with (tmp_path / "out").open("w+") as file:
        view = module.View(Console(file=file, width=200), ["shown already"])
        try:
            view.node_started("Trainer", 6, 9)
            get_logger("data").warning("shown already")
            get_logger("trainer").info("step 5/10, loss 0.5000\x1b[2J")
            view.node_ended(NodeRun("Trainer", "ran", 1.25, 4))
        finally:
            view.close()
        file.seek(0)
        shown = file.read().split("\n")
    assert shown[0].split() == ["Trainer:", "step", "5/10,", "loss", r"0.5000\x1b[2J,", "0.0", "s", "elapsed"]
    assert view.warnings == []
    assert shown[1].split() == ["ran", "Trainer", "1.2", "s"]


def test_a_full_disk_is_an_error_and_not_a_traceback(tmp_path, monkeypatch):
    def no_room(*_: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device", "declaration.yaml")

    monkeypatch.setattr(console, "_make_logs", no_room)
    with pytest.raises(errors.PipelineError, match=r"declaration\.yaml: No space left on device"):
        console.run_declaration(load("digits"), str(tmp_path / "runs"))
