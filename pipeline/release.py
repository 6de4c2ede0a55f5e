"""Which release has compiled a pipeline, and whether the one that runs a step of it is the same."""

from __future__ import annotations

import os

import tfx_estimator
from tfx_estimator.pipeline.errors import DeclarationError

# Of every step's container.
COMPILED_BY = "TFX_ESTIMATOR_COMPILED_BY"


def variables() -> dict[str, str]:
    """Returns what a container of a compiled pipeline is told of the release that compiles it."""
    return {COMPILED_BY: tfx_estimator.__version__}


def check_release() -> None:
    """Checks, in a container, that the image holds the release that compiled the pipeline.

    Each release has settings of its own: an older one stumbles over those that it does not know, a newer one takes its
    own defaults for those that it misses.

    Raises:
        DeclarationError: It holds another one.
    """
    compiled, here = os.environ.get(COMPILED_BY), tfx_estimator.__version__
    if compiled and compiled != here:
        raise DeclarationError(
            f"tfx-estimator {compiled} has compiled this pipeline, and tfx-estimator {here} is to run it",
            expected=f"{compiled} in the image, the same in all three numbers",
            todo=f"compile anew with {here}, or name an image with {compiled} in deploy.image",
        )
