"""Which release, on which stack, has compiled a pipeline, and whether the one that runs a step of it is the same."""

from __future__ import annotations

import os

import tfx_estimator
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.stack import stacks

# Of every step's container.
COMPILED_BY = "TFX_ESTIMATOR_COMPILED_BY"


def variables() -> dict[str, str]:
    """Returns what a container of a compiled pipeline is told of the release that compiles it."""
    return {COMPILED_BY: _release()}


def _release() -> str:
    return f"{tfx_estimator.__version__} on {stacks.current().name}"


def check_release() -> None:
    """Checks, in a container, that the image holds the release and the stack that compiled the pipeline.

    Each release has settings of its own: an older one stumbles over those that it does not know, a newer one takes its
    own defaults for those that it misses. And each TFX has contracts of its own with the service.

    Raises:
        DeclarationError: It holds another one.
    """
    compiled = os.environ.get(COMPILED_BY)
    if compiled and compiled != (here := _release()):
        raise DeclarationError(
            f"tfx-estimator {compiled} has compiled this pipeline, and tfx-estimator {here} is to run it",
            expected=f"{compiled} in the image, the same in all three numbers and on the same stack",
            todo=f"compile anew with {here}, or name an image with {compiled} in deploy.image",
        )
