"""Serves the evaluation images from a pushed model, with TensorFlow alone: `serve_images.py MODEL EXAMPLES`."""

from __future__ import annotations

import glob
import sys

import tensorflow as tf


def main() -> None:
    """Predicts every image by the `images` signature."""
    model = tf.saved_model.load(sys.argv[1])
    serve = model.signatures["images"]
    shape = serve.structured_input_signature[1]["images"].shape[1:]
    spec = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    hits = count = 0
    for batch in tf.data.TFRecordDataset(sorted(glob.glob(f"{sys.argv[2]}/*"))).batch(500):
        parsed = tf.io.parse_example(batch, spec)
        images = tf.reshape(tf.io.decode_raw(parsed["image"], tf.uint8), [-1, *shape])
        found = serve(images=images)["class_ids"]
        hits += int(tf.reduce_sum(tf.cast(found == parsed["label"], tf.int64)))
        count += len(images)
    print(hits / count)


main()
