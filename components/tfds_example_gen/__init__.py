"""TfdsExampleGen: labelled images -> sharded tf.Examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfx_estimator.components.tfds_example_gen.component import TfdsExampleGen

__all__ = ["TfdsExampleGen"]


def __getattr__(name: str) -> Any:
    # Lazily: the Trainer reads the properties of an artifact of this component, without importing Beam.
    if name == "TfdsExampleGen":
        from tfx_estimator.components.tfds_example_gen.component import TfdsExampleGen

        return TfdsExampleGen
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
