"""The matrix products of the dense network's step and nothing else: what no compiler of the step can leave out."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.bench.worker import Slices

PRODUCTS = "products"
# Of `tests.bench.networks.dense` on MNIST.
_PIXELS, _HIDDEN, _CLASSES = 28 * 28, 128, 10


def multiply(slices: Slices, batch_size: int, threads: int, slice_steps: int) -> None:
    """Does them by TensorFlow's own kernels: forward, and backward to the weights, not to the images."""
    os.environ["TF_NUM_INTRAOP_THREADS"] = str(threads)
    import tensorflow as tf

    images = tf.random.stateless_uniform([batch_size, _PIXELS], seed=[1, 1])
    first = tf.Variable(tf.random.stateless_uniform([_PIXELS, _HIDDEN], seed=[1, 2]))
    second = tf.Variable(tf.random.stateless_uniform([_HIDDEN, _CLASSES], seed=[1, 3]))

    @tf.function
    def steps(count: tf.Tensor) -> tf.Tensor:
        used = 0.0
        for _ in tf.range(count):
            hidden = tf.matmul(images, first)
            logits = tf.matmul(hidden, second)
            to_second = tf.matmul(hidden, logits, transpose_a=True)
            to_hidden = tf.matmul(logits, second, transpose_b=True)
            to_first = tf.matmul(images, to_hidden, transpose_a=True)
            # One number of each, so that none can be left out.
            used += to_first[0, 0] + to_second[0, 0]
        return used

    steps(tf.constant(slice_steps))
    going = slices.warm()
    while going:
        steps(tf.constant(slice_steps))
        going = slices.done(slice_steps * batch_size)
