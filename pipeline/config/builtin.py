"""What ships with this project and is named by one word: `trainer.model: mnist_cnn`."""

from __future__ import annotations

from collections.abc import Sequence

from tfx_estimator.pipeline.user_source.modules import find_module

# Dotted path in the declaration -> short name -> `package.module:function`.
SHORT_NAMES: dict[str, dict[str, str]] = {
    "trainer.model": {
        name: f"tfx_estimator.model_fn.networks:{name}"
        for name in ("mnist_cnn", "cifar_cnn", "cifar_resnet", "cifar_resnet9")
    },
    "transform.preprocessing_fn": {"standardize": "tfx_estimator.data.preprocessing:preprocessing_fn"},
}
# Built-in networks with batch normalisation. Others are known when they are made.
NORMALISING = ("cifar_resnet", "cifar_resnet9")

_PREFIX = "tfx_estimator."


def expand(path: str, name: str) -> str:
    """Returns the `package.module:function` that a value means: the built-in one of that name, or itself."""
    return SHORT_NAMES[path].get(name, name)


def modern_name(path: str, name: str, search_paths: Sequence[str]) -> str:
    """Returns the short name of a built-in function that is written as versions before 0.2 named it.

    They were top-level modules, so that `model_fn.networks:mnist_cnn` may also mean a module of the user's own: where
    there is one, it is meant.

    Args:
        search_paths: Folders where the user's modules are looked for before `sys.path`.
    """
    module = name.partition(":")[0].removeprefix(_PREFIX)
    old = {target.removeprefix(_PREFIX): short for short, target in SHORT_NAMES[path].items()}
    short = old.get(name.removeprefix(_PREFIX), name)
    is_theirs = not name.startswith(_PREFIX) and find_module(module, search_paths) is not None
    return name if is_theirs else short
