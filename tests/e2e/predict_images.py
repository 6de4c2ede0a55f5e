"""Predicts the evaluation images by the pushed model, with TensorFlow alone: `predict_images.py MODEL EXAMPLES NPZ`."""

from __future__ import annotations

import glob
import sys

import numpy as np
import tensorflow as tf

serve = tf.saved_model.load(sys.argv[1]).signatures["images"]
shape = serve.structured_input_signature[1]["images"].shape[1:]
images, labels = [], []
for path in sorted(glob.glob(f"{sys.argv[2]}/*")):
    for record in tf.compat.v1.io.tf_record_iterator(path):
        feature = tf.train.Example.FromString(record).features.feature
        images.append(np.frombuffer(feature["image"].bytes_list.value[0], np.uint8).reshape(shape))
        labels.append(feature["label"].int64_list.value[0])
probabilities = serve(images=tf.constant(np.stack(images)))["probabilities"].numpy()
np.savez(sys.argv[3], images=np.stack(images), labels=np.array(labels), probabilities=probabilities)
