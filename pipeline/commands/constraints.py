"""`tfx-estimator constraints`: the versions that were tested together, for pip's `-c`. Standard library only."""

from __future__ import annotations

import argparse
import re
from importlib import metadata

HELP = "print the versions that were tested together, as constraints for pip"
EPILOG = """\
pip and uv find versions that fit TFX in minutes, once they are told where to look. With a wheel of this package:

  pip install "tfx_estimator-VERSION-py3-none-any.whl[locked]"     exactly the tested versions

or, where other packages share the environment and some versions have to differ:

  pip install --no-deps tfx_estimator-VERSION-py3-none-any.whl
  tfx-estimator constraints > constraints.txt                      edit what has to differ
  pip install -c constraints.txt tfx_estimator-VERSION-py3-none-any.whl OTHERS
"""
_LOCKED = re.compile(r"""([\w.-]+==[^\s;]+)\s*;\s*extra\s*==\s*["']locked["']""")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    """Prints a pin a line."""
    from tfx_estimator.pipeline.commands.output import say

    say("\n".join(pins()))
    return 0


def pins() -> list[str]:
    """Returns `name==version` of every package below this one, as the extra `locked` asks for them.

    Raises:
        TfxEstimatorError: The package was not installed, only put on the path: there is no metadata.
    """
    from tfx_estimator.pipeline.errors import TfxEstimatorError

    try:
        required = metadata.requires("tfx-estimator") or []
    except metadata.PackageNotFoundError as error:
        raise TfxEstimatorError(
            "tfx-estimator is on the path, but not installed",
            expected="an installed wheel, or `make install` in a checkout",
            todo="install it: pip install --no-deps WHEEL",
        ) from error
    return [match[1] for line in required if (match := _LOCKED.fullmatch(line.strip()))]
