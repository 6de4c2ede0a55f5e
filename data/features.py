"""Names of a tf.Example's features, and of a served model's inputs: examples, pixels, or encoded files."""

from __future__ import annotations

# Raw uint8 bytes of one image, row by row: height * width * channels.
IMAGE = "image"
# int64, 0 <= label < number of classes.
LABEL = "label"
# Names of the serving inputs, and of their signatures.
EXAMPLES = "examples"
IMAGES = "images"
# PNG or JPEG files.
ENCODED = "encoded"
# A table's columns, a tensor each.
COLUMNS = "columns"
