"""Runs a program that says `tf.estimator`, unchanged, on any TensorFlow.

    python -m tfx_estimator.estimator train.py --its=arguments

is `python train.py --its=arguments` with `tf.estimator` brought back first: see `tfx_estimator.bring_back_estimator`.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence
from typing import Optional


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Runs the program.

    Args:
        arguments: Its file, and its arguments; None takes them from the command line.

    Raises:
        SystemExit: The program, or what it needs, is not there; or it ended so itself.
    """
    from tfx_estimator import TfxEstimatorError, bring_back_estimator

    parser = argparse.ArgumentParser("python -m tfx_estimator.estimator", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("program", help="a Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the program is given")
    given = parser.parse_args(arguments)
    if not os.path.isfile(given.program):
        parser.error(f"there is no file {given.program}")
    try:
        bring_back_estimator()
    except TfxEstimatorError as error:
        parser.exit(error.exit_code, f"tfx-estimator: {error}\n")
    # As Python itself has it.
    sys.argv = [given.program, *given.arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(given.program))
    runpy.run_path(given.program, run_name="__main__")


if __name__ == "__main__":
    main()
