"""Environment variables: the choice of Keras, the proxy, and the release that compiled a step."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Mapping

import tfx_estimator
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.base.stack.stacks import KERAS

# In the container of every step.
COMPILED_BY = "TFX_ESTIMATOR_COMPILED_BY"
# TensorFlow's values for true.
_TRUE = ("1", "true", "True")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def without_other_keras(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment in which TensorFlow uses Keras 2."""
    return {name: value for name, value in environment.items() if name != KERAS or _is_of_keras_2(value)}


def clear_other_keras() -> bool:
    """Removes another choice of Keras from this process's environment; returns True if there was one."""
    if found := not _is_of_keras_2(os.environ.get(KERAS)):
        del os.environ[KERAS]
    stacks.choose_keras()
    return found


def _is_of_keras_2(value: str | None) -> bool:
    """Returns True if the value selects Keras 2: tf_keras if installed, else keras of TensorFlow 2.15."""
    return value is None or (value in _TRUE) is (importlib.util.find_spec("tf_keras") is not None)


def no_proxy(environment: Mapping[str, str], hosts: Iterable[str] = ()) -> dict[str, str]:
    """Returns the variable that excludes gRPC's local connections from the proxy of `http_proxy`.

    Without it, gRPC sends `localhost` to the proxy, for which that is another machine. Existing exclusions are kept.
    Source: https://github.com/grpc/grpc/blob/master/doc/environment_variables.md; tensorflow#24887.
    """
    # gRPC ignores `no_proxy` if `no_grpc_proxy` is set.
    before = environment.get("no_grpc_proxy") or environment.get("no_proxy") or ""
    kept = [each.strip() for each in before.split(",") if each.strip()]
    return {"no_grpc_proxy": ",".join(dict.fromkeys([*kept, *_LOOPBACK, *hosts]))}


def release_variables() -> dict[str, str]:
    """Returns the variable with which a compiled pipeline passes its release to containers."""
    return {COMPILED_BY: _release()}


def _release() -> str:
    return f"{tfx_estimator.__version__} on {stacks.current().name}"


def check_release() -> None:
    """Refuses, in a container, an image with another release or stack than compiled the pipeline.

    Settings differ between releases: an older one fails on unknown settings, and a newer one fills missing ones with
    its own defaults. And each TFX version has its own protocol with the service.
    """
    compiled = os.environ.get(COMPILED_BY)
    if compiled and compiled != (here := _release()):
        raise DeclarationError(
            f"tfx-estimator {compiled} has compiled this pipeline, and the image has tfx-estimator {here}",
            expected=f"{compiled} in the image, the same in all three numbers and on the same stack",
            todo=f"compile it again with {here}, or name an image with {compiled} in deploy.image",
        )
