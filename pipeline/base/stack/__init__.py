"""Code that depends on the versions of TensorFlow, TFX and Python."""
