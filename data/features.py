"""The features of a tf.Example, by name."""

from __future__ import annotations

# Raw uint8 bytes of one image, row by row: height * width * channels of them.
IMAGE = "image"
# int64, 0 <= label < number of classes.
LABEL = "label"
