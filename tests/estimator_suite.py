"""Runs tf.estimator's own unit tests on the installed TensorFlow, and prints the outcome of each file.

    TFX_ESTIMATOR_CHECKOUT=~/estimator python -m tests.estimator_suite [NAMES ...]

The checkout is of tensorflow/estimator at the branch r2.15, whose wheel has no tests; those of `tpu/` are left out.
Each file runs in a process, for at most ten minutes. Functions that newer Pythons removed are restored: names of
unittest's assertions, and inspect.getargspec.
"""

from __future__ import annotations

import collections
import inspect
import os
import re
import runpy
import subprocess
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = "TFX_ESTIMATOR_CHECKOUT"
_SECONDS = 600
# What inspect.getargspec returned.
ArgSpec = collections.namedtuple("ArgSpec", "args varargs keywords defaults")
_ALIASES = {
    "assertEquals": "assertEqual",
    "assertNotEquals": "assertNotEqual",
    "assertAlmostEquals": "assertAlmostEqual",
    "assertRegexpMatches": "assertRegex",
    "assertNotRegexpMatches": "assertNotRegex",
    "assertRaisesRegexp": "assertRaisesRegex",
    "assertItemsEqual": "assertCountEqual",
    "assert_": "assertTrue",
}


def run_file(file: str) -> None:
    """Runs a file of tests as the main program, with `tf.estimator` restored."""
    import tfx_estimator

    for old, new in _ALIASES.items():
        if not hasattr(unittest.TestCase, old):
            setattr(unittest.TestCase, old, getattr(unittest.TestCase, new))
    if not hasattr(inspect, "getargspec"):
        vars(inspect)["getargspec"] = lambda function: ArgSpec(*inspect.getfullargspec(function)[:4])
    tfx_estimator.bring_back_estimator()
    sys.argv = [file]
    runpy.run_path(file, run_name="__main__")


def outcome(file: Path) -> str:
    """Returns the outcome of a file's tests, and a line for each failure."""
    command = [sys.executable, "-m", "tests.estimator_suite", str(file)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"no end within {_SECONDS} s"
    ran, ended = re.search(r"^Ran (\d+) tests?", done.stderr, re.M), re.search(r"^(OK|FAILED).*$", done.stderr, re.M)
    if not (ran and ended):
        return f"exit code {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1]}"
    return "\n    ".join([f"{ran[1]} ran, {ended[0]}", *_failures(done.stderr)])


def _failures(stderr: str) -> Iterator[str]:
    """Yields each failed test with the last line of its error."""
    one = r"^(?:FAIL|ERROR): (\S+)[^\n]*?(\[\w+\])?\n(.*?)(?=^={70}$|^Ran \d+ test)"
    for name, parameters, lines in re.findall(one, stderr, re.M | re.S):
        errors = re.findall(r"^[A-Za-z_][\w.]*(?:Error|Exception).*", lines, re.M)
        yield f"{name}{parameters}: {(errors or ['?'])[-1][:200]}"


def main(names: list[str]) -> None:
    """Runs the files with the given names, or all, and prints a line for each."""
    import tensorflow as tf

    print(f"TensorFlow {tf.__version__}, Python {sys.version.split()[0]}", flush=True)
    root = Path(os.environ[CHECKOUT]).expanduser() / "tensorflow_estimator" / "python" / "estimator"
    for file in sorted(root.rglob("*_test.py")):
        path = file.relative_to(root)
        if path.parts[0] != "tpu" and (not names or path.name in names):
            print(f"{path}: {outcome(file)}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 2 and os.path.isfile(sys.argv[1]):
        run_file(sys.argv[1])
    else:
        main(sys.argv[1:])
