"""Runs a program that uses `tf.estimator`, unchanged, on any TensorFlow.

    python -m tfx_estimator.estimator train.py --its=arguments
    python -m tfx_estimator.estimator -m trainer.task --its=arguments
    python -m tfx_estimator.estimator --tf1 train.py --its=arguments

are `python train.py …` and `python -m trainer.task …` after `tfx_estimator.bring_back_estimator()`; the last one is for
a program that was written for TensorFlow 1.
"""

from __future__ import annotations

import argparse
import importlib.util
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
        SystemExit: The program or a dependency is missing, or the program raised it.
    """
    from tfx_estimator import TfxEstimatorError, bring_back_estimator

    parser = make_parser()
    given = parser.parse_args(arguments)
    # As Python itself does.
    sys.path[0] = os.getcwd() if given.is_module else os.path.dirname(os.path.abspath(given.program))
    if not (_is_module(given.program) if given.is_module else os.path.isfile(given.program)):
        parser.error(f"there is no {'module' if given.is_module else 'file'} {given.program}")
    sys.argv = [given.program, *given.arguments]
    try:
        bring_back_estimator(given.tf1)
    except TfxEstimatorError as error:
        parser.exit(error.exit_code, f"tfx-estimator: {error}\n")
    from tfx_estimator.model_fn.bridge.tf1 import lacks, place_of

    try:
        if given.is_module:
            runpy.run_module(given.program, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(given.program, run_name="__main__")
    except Exception as error:
        todo = "run with --tf1: python -m tfx_estimator.estimator --tf1 …"
        ours = error if isinstance(error, TfxEstimatorError) else None if given.tf1 else lacks(error, todo)
        if not ours:
            raise
        parser.exit(ours.exit_code, f"tfx-estimator: {place_of(error)}: {ours}\n")


def make_parser() -> argparse.ArgumentParser:
    """Returns the parser of its command line."""
    parser = argparse.ArgumentParser("python -m tfx_estimator.estimator", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "-m", dest="is_module", action="store_true", help="the program is a module, as after `python -m`"
    )
    parser.add_argument(
        "--tf1", action="store_true", help="the program was written for TensorFlow 1: tf.Session, tf.layers, tf.contrib"
    )
    parser.add_argument("program", help="a Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's arguments")
    return parser


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its package is missing
        return False


if __name__ == "__main__":
    main()
