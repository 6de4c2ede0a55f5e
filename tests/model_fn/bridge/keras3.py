"""The shared process with Keras 3 in which tests convert: see keras3_process.py."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked_tasks import SERVERS
from tests.root import ROOT
from tfx_estimator.pipeline.base.stack import stacks

USER = ROOT / "tests/pipeline/convert/user"


class Keras3:
    """Sends commands to a process, and waits for their completion."""

    def __init__(self) -> None:
        environment = {**os.environ, stacks.KERAS: "0", "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", USER)))}
        program = Path(__file__).with_name("keras3_process.py")
        self._process = subprocess.Popen(
            [sys.executable, program], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        SERVERS.add(self._process.pid)

    def do(self, *words: str) -> None:
        """Calls a function of the process by its name."""
        print(json.dumps(words), file=self._process.stdin, flush=True)
        stderr = []
        for line in self._process.stderr:
            if line == "done\n":
                return
            stderr.append(line)
        pytest.fail("".join(stderr[-30:]))

    def close(self) -> None:
        """Ends the process."""
        shared.cache_clear()
        self._process.kill()
        self._process.communicate()


@functools.lru_cache(maxsize=1)
def shared() -> Keras3:
    """Returns the one process of all tests."""
    return Keras3()
