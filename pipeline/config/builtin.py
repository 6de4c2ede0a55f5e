"""What ships with this project and is named by one word: `trainer.model: mnist_cnn`."""

from __future__ import annotations

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


def expand(path: str, name: str) -> str:
    """Returns the `package.module:function` that a value means: the built-in one of that name, or itself."""
    return SHORT_NAMES[path].get(name, name)
