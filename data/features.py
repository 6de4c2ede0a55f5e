"""The features of a tf.Example, by name, and what a served model is asked with: these, or pixels, or files."""

from __future__ import annotations

# Raw uint8 bytes of one image, row by row: height * width * channels of them.
IMAGE = "image"
# int64, 0 <= label < number of classes.
LABEL = "label"
# Names of the serving inputs, and of their signatures.
EXAMPLES = "examples"
IMAGES = "images"
# PNG or JPEG files.
ENCODED = "encoded"
