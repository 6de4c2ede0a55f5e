"""The versions that were tested together."""

from __future__ import annotations

from tfx_estimator.pipeline.base.errors import TfxEstimatorError
from tfx_estimator.pipeline.base.stack import stacks


def pins() -> list[str]:
    """Returns `name==version` of every package below this one, as the extra of this stack asks for them.

    Raises:
        TfxEstimatorError: The package was not installed, only put on the path: there is no metadata.
    """
    # Here, since every verb's module is imported for the help, and this one takes 25 ms to import.
    from importlib import metadata

    from packaging.requirements import Requirement

    try:
        required = metadata.requires("tfx-estimator") or []
    except metadata.PackageNotFoundError as error:
        raise TfxEstimatorError(
            "tfx-estimator is on the path, but not installed",
            expected="an installed wheel, or `make install` in a checkout",
            todo="install it: pip install --no-deps WHEEL",
        ) from error
    extra = {"extra": f"{stacks.current().extra}-locked"}
    asked = map(Requirement, required)
    return [f"{each.name}{each.specifier}" for each in asked if each.marker and each.marker.evaluate(extra)]
