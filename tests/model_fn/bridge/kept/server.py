"""Has imported TensorFlow and Keras alone, and forks for each request: a JSON list of a file and its arguments, a line.

    python server.py LOG

Prints the exit code of each. No operation of TensorFlow runs before the fork.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback

import tensorflow as tf

assert tf.keras.Model
for line in sys.stdin:
    if not (pid := os.fork()):
        code = 1
        log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        try:
            path, *sys.argv[1:] = json.loads(line)
            sys.argv[0] = path
            sys.path[0] = os.path.dirname(path)
            os.chdir(sys.path[0])
            runpy.run_path(path, run_name="__main__")
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            sys.stdout.flush()
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
