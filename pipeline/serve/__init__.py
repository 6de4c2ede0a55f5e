"""TensorFlow Serving's REST API on this machine, to try a model and its clients."""
