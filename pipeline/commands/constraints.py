"""`tfx-estimator constraints`: prints the versions that were tested together, for pip's `-c`."""

from __future__ import annotations

import argparse

HELP = "print the versions that were tested together, as constraints for pip"
EPILOG = """\
With constraints, pip and uv find versions that fit TFX in minutes. With a wheel of this package:

  pip install "tfx_estimator-VERSION-py3-none-any.whl[tfx1-21-locked]"     exactly the tested versions

or, where other packages share the environment and some versions have to differ:

  pip install tfx_estimator-VERSION-py3-none-any.whl
  tfx-estimator constraints > constraints.txt                      edit what has to differ
  pip install -c constraints.txt "tfx_estimator-VERSION-py3-none-any.whl[tfx1-21]" OTHERS
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    """Prints the pins, one per line."""
    from tfx_estimator.pipeline.commands.shared import say
    from tfx_estimator.pipeline.doctor.machine import pins

    say("\n".join(pins()))
    return 0
