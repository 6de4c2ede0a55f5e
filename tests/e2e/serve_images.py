"""Serves the evaluation images from a pushed model, with TensorFlow alone: `serve_images.py MODEL EXAMPLES`."""

from __future__ import annotations

import glob
import json
import sys

import tensorflow as tf


def main() -> None:
    """Predicts every image by the `images` signature."""
    model = tf.saved_model.load(sys.argv[1])
    serve = model.signatures["images"]
    shape = serve.structured_input_signature[1]["images"].shape[1:]
    spec = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    hits = count = 0
    names: dict[int, set[str]] = {}
    for batch in tf.data.TFRecordDataset(sorted(glob.glob(f"{sys.argv[2]}/*"))).batch(500):
        parsed = tf.io.parse_example(batch, spec)
        images = tf.reshape(tf.io.decode_raw(parsed["image"], tf.uint8), [-1, *shape])
        outputs = serve(images=images)
        # Both signatures give the same.
        same = model.signatures["serving_default"](examples=batch)
        assert sorted(same) == sorted(outputs)
        assert all(tf.reduce_all(same[name] == outputs[name]) for name in ("class_ids", "classes"))
        found = outputs["class_ids"]
        for number, name in zip(found.numpy().tolist(), outputs["classes"].numpy()):
            names.setdefault(number, set()).add(name.decode())
        hits += int(tf.reduce_sum(tf.cast(found == parsed["label"], tf.int64)))
        count += len(images)
    print(json.dumps({"accuracy": hits / count, "names": {number: sorted(each) for number, each in names.items()}}))


main()
