"""The declaration: typed, closed, validated; imports no TensorFlow, TFX or Beam."""

from pipeline.config.declaration import Declaration

__all__ = ["Declaration"]
