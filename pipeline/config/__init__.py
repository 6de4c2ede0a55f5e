"""The declaration: typed, closed, validated; imports no TensorFlow, TFX or Beam."""

from pipeline.config.declaration import Declaration
from pipeline.config.load import Loaded, load

__all__ = ["Declaration", "Loaded", "load"]
