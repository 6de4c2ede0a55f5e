"""Serves the evaluation images from a pushed model, with TensorFlow alone: `serve_images.py MODEL EXAMPLES NPZ`."""

from __future__ import annotations

import collections
import glob
import sys

import numpy as np
import tensorflow as tf


def serve(pushed: str, examples: str) -> dict[str, np.ndarray]:
    """Returns its outputs with the examples, in the order of their files."""
    model = tf.saved_model.load(pushed)
    signature = model.signatures["images"]
    shape = signature.structured_input_signature[1]["images"].shape[1:]
    spec = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    found = collections.defaultdict(list)
    for batch in tf.data.TFRecordDataset(sorted(glob.glob(f"{examples}/*"))).batch(500):
        parsed = tf.io.parse_example(batch, spec)
        images = tf.reshape(tf.io.decode_raw(parsed["image"], tf.uint8), [-1, *shape])
        outputs = signature(images=images)
        # Both signatures have equal outputs.
        same = model.signatures["serving_default"](examples=batch)
        assert sorted(same) == sorted(outputs)
        assert all(tf.reduce_all(same[name] == outputs[name]) for name in ("class_ids", "classes"))
        for name, values in {**outputs, "images": images, "labels": parsed["label"]}.items():
            found[name].append(values.numpy())
    found["classes"] = [np.concatenate(found["classes"]).astype(np.bytes_)]
    return {name: np.concatenate(values) for name, values in found.items()}


if __name__ == "__main__":
    np.savez(sys.argv[3], **serve(*sys.argv[1:3]))
