"""Variables of a process's environment: its Keras, its proxy, and the release that compiled its step."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Mapping

import tfx_estimator
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.base.stack.stacks import KERAS

# Of every step's container.
COMPILED_BY = "TFX_ESTIMATOR_COMPILED_BY"
# As TensorFlow reads it.
_TRUE = ("1", "true", "True")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def without_other_keras(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment in which TensorFlow takes Keras 2."""
    return {name: value for name, value in environment.items() if name != KERAS or _is_of_keras_2(value)}


def clear_other_keras() -> bool:
    """Leaves another choice of Keras out of this process's environment, and so of its children's."""
    if found := not _is_of_keras_2(os.environ.get(KERAS)):
        del os.environ[KERAS]
    stacks.choose_keras()
    return found


def _is_of_keras_2(value: str | None) -> bool:
    """Keras 2 is tf_keras where it is installed, else keras of TensorFlow 2.15."""
    return value is None or (value in _TRUE) is (importlib.util.find_spec("tf_keras") is not None)


def no_proxy(environment: Mapping[str, str], hosts: Iterable[str] = ()) -> dict[str, str]:
    """Returns the variable that keeps gRPC's connections inside this machine from the proxy of `http_proxy`.

    It would take `localhost` there as well, which is another machine for the proxy. What the environment keeps from it
    is kept on. Source: https://github.com/grpc/grpc/blob/master/doc/environment_variables.md; tensorflow#24887.
    """
    # The second is not asked where there is the first.
    before = environment.get("no_grpc_proxy") or environment.get("no_proxy") or ""
    kept = [each.strip() for each in before.split(",") if each.strip()]
    return {"no_grpc_proxy": ",".join(dict.fromkeys([*kept, *_LOOPBACK, *hosts]))}


def release_variables() -> dict[str, str]:
    """Returns what a container of a compiled pipeline is told of the release that compiles it."""
    return {COMPILED_BY: _release()}


def _release() -> str:
    return f"{tfx_estimator.__version__} on {stacks.current().name}"


def check_release() -> None:
    """Refuses, in a container, an image that holds another release or stack than compiled the pipeline.

    Each release has settings of its own: an older one stumbles over those that it does not know, a newer one takes its
    own defaults for those that it misses. And each TFX has contracts of its own with the service.
    """
    compiled = os.environ.get(COMPILED_BY)
    if compiled and compiled != (here := _release()):
        raise DeclarationError(
            f"tfx-estimator {compiled} has compiled this pipeline, and tfx-estimator {here} is to run it",
            expected=f"{compiled} in the image, the same in all three numbers and on the same stack",
            todo=f"compile anew with {here}, or name an image with {compiled} in deploy.image",
        )
