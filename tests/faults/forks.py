"""Calls a function in forked copies of one process that has imported what it needs.

    python -m tests.faults.forks MODULE:FUNCTION

reads requests as lines of JSON. A call has `arguments` and `log`, the file for its output; the response is the copy's
process id. A wait has `wait`, a process id; the response is its exit code.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback

from tfx_estimator.pipeline.base.ending.keeper import die_with
from tfx_estimator.pipeline.base.installed import uncollected


def main(target: str) -> None:
    """Serves until stdin or the requesting process ends."""
    die_with(os.getppid())
    module, _, name = target.partition(":")
    with uncollected():
        function = getattr(importlib.import_module(module), name)
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if pid := request.get("wait"):
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
            continue
        server = os.getpid()
        if not (pid := os.fork()):
            die_with(server)
            _call(function, **request)
        print(pid, flush=True)


def _call(function, arguments: list, log: str) -> None:
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    code = 70
    try:
        code = function(*arguments) or 0
    except SystemExit as end:
        # Like at the normal end of a process: an exit code that is no number is a message.
        code = end.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1])
