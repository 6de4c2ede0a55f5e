"""Runs a program that says `tf.estimator`, unchanged, on any TensorFlow.

    python -m tfx_estimator.estimator train.py --its=arguments

is `python train.py --its=arguments` with `tf.estimator` brought back first: see `tfx_estimator.bring_back_estimator`.
"""

from __future__ import annotations

import os
import runpy
import sys

_USAGE = "usage: python -m tfx_estimator.estimator PROGRAM.py [ARGUMENTS ...]"


def main(arguments: list[str]) -> int:
    """Runs the program.

    Args:
        arguments: Its file, and its arguments.

    Returns:
        The exit code where it could not be run; the program itself ends as it does.
    """
    from tfx_estimator import TfxEstimatorError, bring_back_estimator

    if not arguments or arguments[0].startswith("-"):
        print(_USAGE, file=sys.stderr)
        return 2
    program = arguments[0]
    if not os.path.isfile(program):
        print(f"tfx-estimator: there is no file {program}\n{_USAGE}", file=sys.stderr)
        return 2
    try:
        bring_back_estimator()
    except TfxEstimatorError as error:
        print(f"tfx-estimator: {error}", file=sys.stderr)
        return 6
    # As Python itself has it.
    sys.argv[:] = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    runpy.run_path(program, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
