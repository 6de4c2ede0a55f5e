"""A task's step is read while it runs and after its end, on any file system."""

from __future__ import annotations

import errno
import mmap
import os
import signal

import pytest

from tests.root import run_python
from tfx_estimator.components.trainer.protocol.events import StepCell


@pytest.mark.parametrize("error", [None, OSError(errno.ENODEV, "No such device"), ValueError("longer than the file")])
def test_a_step_is_readable_at_once_with_and_without_shared_memory(tmp_path, monkeypatch, error):
    # As on 9p without a cache, or FUSE with direct_io.
    def refuse(*_):
        raise error

    if error:
        monkeypatch.setattr(mmap, "mmap", refuse)
    writer, reader = StepCell(str(tmp_path / "step")), StepCell(str(tmp_path / "step"))
    assert reader.get() == -1
    for step in (7, 2**40, 0):
        writer.set(step)
        assert reader.get() == step
    assert os.path.getsize(tmp_path / "step") == 8
    # A restarted task.
    StepCell(str(tmp_path / "step")).set(3)
    assert reader.get() == 3


@pytest.mark.parametrize("shared", [True, False])
def test_it_is_kept_when_its_process_is_killed(tmp_path, shared):
    code = (
        "import mmap, os, signal, sys\n"
        "def refuse(*_): raise OSError\n"
        f"if not {shared}: mmap.mmap = refuse\n"
        "from tfx_estimator.components.trainer.protocol.events import StepCell\n"
        "cell = StepCell(sys.argv[1])\n"
        "for step in range(100): cell.set(step)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert run_python("-c", code, str(tmp_path / "step")).returncode == -signal.SIGKILL
    assert StepCell(str(tmp_path / "step")).get() == 99
