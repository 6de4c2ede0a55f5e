"""The declaration: typed, closed, validated; imports no TensorFlow, TFX or Beam."""

from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.load import Loaded, load

__all__ = ["Declaration", "Loaded", "load"]
