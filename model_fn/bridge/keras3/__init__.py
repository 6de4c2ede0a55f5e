"""A declared training as source code of Keras 3."""
