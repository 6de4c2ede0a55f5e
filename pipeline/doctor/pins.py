"""The versions that were tested together. Standard library only."""

from __future__ import annotations

import re

from tfx_estimator.pipeline.errors import TfxEstimatorError

_LOCKED = re.compile(r"""([\w.-]+==[^\s;]+)\s*;\s*extra\s*==\s*["']locked["']""")


def pins() -> list[str]:
    """Returns `name==version` of every package below this one, as the extra `locked` asks for them.

    Raises:
        TfxEstimatorError: The package was not installed, only put on the path: there is no metadata.
    """
    # Here, since every verb's module is imported for the help, and this one takes 25 ms to import.
    from importlib import metadata

    try:
        required = metadata.requires("tfx-estimator") or []
    except metadata.PackageNotFoundError as error:
        raise TfxEstimatorError(
            "tfx-estimator is on the path, but not installed",
            expected="an installed wheel, or `make install` in a checkout",
            todo="install it: pip install --no-deps WHEEL",
        ) from error
    return [match[1] for line in required if (match := _LOCKED.fullmatch(line.strip()))]
