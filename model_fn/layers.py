"""Layers of the shipped networks."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.pipeline.base.errors import UserCodeError


class PooledConv2D(tf.keras.layers.Layer):
    """Convolution, 2x2 max-pooling, bias and ReLU: the function of `Conv2D(activation="relu")`, `MaxPooling2D()`.

    Adding a channel's bias and ReLU are monotonic, so they commute with the maximum; after the pooling they, and the
    sum that is the bias's gradient, touch a quarter of the elements. A training step of `mnist_cnn` costs a fifth less
    CPU; outputs are equal, gradients equal up to the order of summation. Where a pooling drops an odd row and column,
    what only they depend on is not computed: a step of `cifar_cnn` costs another seventh less.

    Args:
        filters: Number of output channels.
        kernel_size: Height and width of the kernel; no padding.
        read_by: Kernel sizes of the PooledConv2Ds, one after the other, that alone read what this one returns. What
            their poolings drop is not returned.
        **kwargs: Of a Keras layer.
    """

    def __init__(self, filters: int, kernel_size: int, read_by: Sequence[int] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.filters = filters
        self.kernel_size = kernel_size
        self.read_by = tuple(read_by)

    def build(self, input_shape: tf.TensorShape) -> None:
        """Makes `kernel` and `bias`, initialised as Conv2D's."""
        size = self.kernel_size
        self.kernel = self.add_weight("kernel", [size, size, input_shape[-1], self.filters])
        self.bias = self.add_weight("bias", [self.filters], initializer="zeros", experimental_autocast=False)
        super().build(input_shape)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Computes the layer.

        Args:
            inputs: float, [batch, height, width, channels].

        Returns:
            float, [batch, (height - kernel_size + 1) // 2, (width - kernel_size + 1) // 2, filters], less the rows and
            columns that the layers of `read_by` do not use.
        """
        pooled = tf.nn.max_pool2d(tf.nn.conv2d(self._used(inputs), self.kernel, 1, "VALID"), 2, 2, "VALID")
        outputs = tf.nn.relu(tf.nn.bias_add(tf.cast(pooled, self.bias.dtype), self.bias))
        return tf.cast(outputs, pooled.dtype)

    def _used(self, inputs: tf.Tensor) -> tf.Tensor:
        """Leaves out the rows and columns that the poolings, of this layer and of those that read it, drop."""
        sizes = inputs.shape.as_list()[1:3]
        used = [size and _used_size(size, (self.kernel_size, *self.read_by)) for size in sizes]
        # Not by indices: their gradient costs more than is saved.
        return inputs if used == sizes else tf.slice(inputs, [0, 0, 0, 0], [-1, *(size or -1 for size in used), -1])

    def get_config(self) -> dict[str, Any]:
        """Returns what rebuilds the layer."""
        config = {"filters": self.filters, "kernel_size": self.kernel_size, "read_by": self.read_by}
        return {**super().get_config(), **config}


def _used_size(size: int, kernel_sizes: Sequence[int]) -> int:
    """Tells how many of an image's rows, or columns, decide what convolutions with 2x2 pooling in a row return."""
    left = size
    for kernel_size in kernel_sizes:
        left = (left - kernel_size + 1) // 2
        if left < 1:
            return size  # TensorFlow's error tells the true size
    for kernel_size in reversed(kernel_sizes):
        left = 2 * left + kernel_size - 1
    return left


# Above that of float32, relative, and below the step between two of 256 grey levels.
_ROUNDING = 1e-5


class SynchronizedBatchNormalization(tf.keras.layers.Layer):
    """Batch normalisation by the statistics of the global batch, whichever strategy splits it.

    On one device the function, its gradients and its moving averages are those of `tf.keras.layers.BatchNormalization`,
    and the weights have the same names. With several replicas Keras's layer normalises each part of the batch by
    itself, which is another training; its `synchronized=True` cannot be built in an Estimator.

    Each call in training adds one all-reduce of 2 * channels + 1 numbers, of float64, to the forward pass and one to
    the backward pass. `parameter_server` has no global batch: there it is Keras's layer.

    Args:
        momentum: Of the moving averages; they weigh what came before.
        epsilon: Added to the variance.
        **kwargs: Of a Keras layer.
    """

    def __init__(self, momentum: float = 0.99, epsilon: float = 1e-3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.momentum = momentum
        self.epsilon = epsilon

    def build(self, input_shape: tf.TensorShape) -> None:
        """Makes `gamma`, `beta`, `moving_mean` and `moving_variance`, one number a channel."""
        shape = [input_shape[-1]]
        # Never cast to what the network computes in.
        whole: dict[str, Any] = {"experimental_autocast": False}
        self.gamma = self.add_weight("gamma", shape, initializer="ones", **whole)
        self.beta = self.add_weight("beta", shape, initializer="zeros", **whole)
        # Each replica computes the same averages, so nothing needs to be reduced.
        averages: dict[str, Any] = {
            **whole,
            "trainable": False,
            "synchronization": tf.VariableSynchronization.ON_READ,
            "aggregation": tf.VariableAggregation.ONLY_FIRST_REPLICA,
        }
        self.moving_mean = self.add_weight("moving_mean", shape, initializer="zeros", **averages)
        self.moving_variance = self.add_weight("moving_variance", shape, initializer="ones", **averages)
        super().build(input_shape)

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Computes the layer.

        Args:
            inputs: float, [batch, ..., channels].
            training: Normalise by the batch and update the moving averages, or normalise by these; a layer that is
                not `trainable` always does the latter.

        Returns:
            As `inputs`.
        """
        # Statistics of many numbers want the precision of the weights, also where those numbers have less.
        values = tf.cast(inputs, self.gamma.dtype)
        mean, variance = self.moving_mean, self.moving_variance
        if training and self.trainable:
            mean, variance, unbiased = _global_moments(values)
            # TensorFlow's fused operation, which Keras uses where it can, follows the unbiased one.
            fused = inputs.shape.rank == 4 and values.dtype == tf.float32
            followed = unbiased if fused else variance
            self.add_update(lambda: self._follow(self.moving_mean, mean))
            self.add_update(lambda: self._follow(self.moving_variance, followed))
        outputs = tf.nn.batch_normalization(values, mean, variance, self.beta, self.gamma, self.epsilon)
        return tf.cast(outputs, inputs.dtype)

    def _follow(self, average: tf.Variable, value: tf.Tensor) -> Any:
        return average.assign_sub((average - value) * (1.0 - self.momentum))

    def get_config(self) -> dict[str, Any]:
        """Returns what rebuilds the layer."""
        return {**super().get_config(), "momentum": self.momentum, "epsilon": self.epsilon}


# Layers that normalise by the statistics of a batch.
BY_BATCH = (SynchronizedBatchNormalization, tf.keras.layers.BatchNormalization)


class StatelessDropout(tf.keras.layers.Layer):
    """Dropout whose mask depends on the seed, the global step and the example, and on nothing else.

    So each example keeps the same units whichever replica it falls to, and a resumed training draws what an
    uninterrupted one would have drawn: neither holds for `tf.keras.layers.Dropout`. An example is known by the content
    of its image, since its place in a batch differs from strategy to strategy; images that differ in brightness and
    contrast alone share a mask.

    Both built-in ways of training tell the layer the images and the global step; a model_fn of your own calls its
    network within `dropout_keys`.

    Args:
        rate: Part of the units that is dropped, from 0 to less than 1.
        **kwargs: Of a Keras layer.
    """

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = rate

    # AutoGraph would make another error of ours.
    @tf.autograph.experimental.do_not_convert
    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Computes the layer.

        Args:
            inputs: float, [batch, ...]; all but the first dimension are known.
            training: Drop, or pass everything on.

        Returns:
            As `inputs`.

        Raises:
            UserCodeError: Training, and not within `dropout_keys`.
        """
        if not training or not self.rate:
            return inputs
        keys = _KEYS.get()
        if keys is None:
            raise UserCodeError(
                f"the layer {self.name} (StatelessDropout) does not know the examples that it is trained with",
                expected="a network that is trained by make_model_fn, or is called within dropout_keys",
                todo="in your model_fn: `with dropout_keys(features['image'], params['seed']): logits = network(…)`",
            )
        units = inputs.shape[1:].num_elements()
        drawn = _mix(_mix(tf.range(units)) ^ keys.next()[:, tf.newaxis])
        kept = tf.reshape(drawn >= int(self.rate * 2**32), tf.shape(inputs))
        return tf.where(kept, inputs / (1.0 - self.rate), tf.zeros_like(inputs))

    def get_config(self) -> dict[str, Any]:
        """Returns what rebuilds the layer."""
        return {**super().get_config(), "rate": self.rate}


def dropout_keys(
    examples: tf.Tensor, seed: int, step: Optional[tf.Tensor] = None
) -> contextlib.AbstractContextManager[None]:
    """Tells each `StatelessDropout` that is called inside which examples it is called with.

    Args:
        examples: float, [batch, ...]; what distinguishes the examples, such as their images.
        seed: Of the masks.
        step: The global step, an integer scalar; None is that of an Estimator's graph.

    Returns:
        A context manager.
    """
    return DropoutKeys(examples, seed, step).used()


class DropoutKeys:
    """Of one forward pass: gives each dropout layer another key for each example.

    Args:
        examples: As of `dropout_keys`.
        seed: As of `dropout_keys`.
        step: As of `dropout_keys`.
    """

    def __init__(self, examples: tf.Tensor, seed: int, step: Optional[tf.Tensor]) -> None:
        self._examples = examples
        self._seed = seed
        self._step = step
        # By graph: Keras also calls a layer in one that it throws away, to learn the shape of the outputs.
        self._bases: dict[tf.Graph, tf.Tensor] = {}
        self._layers: dict[tf.Graph, int] = {}

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Tells the layers that are called inside; again, where the pass goes on.

        Yields:
            Nothing.
        """
        token = _KEYS.set(self)
        try:
            yield
        finally:
            _KEYS.reset(token)

    def next(self) -> tf.Tensor:
        """uint32, [batch]."""
        graph = tf.compat.v1.get_default_graph()
        if graph not in self._bases:
            step = tf.compat.v1.train.get_or_create_global_step() if self._step is None else self._step
            self._bases[graph] = _mix(_mix(_fingerprint(self._examples) ^ self._seed) ^ tf.cast(step, tf.uint32))
        self._layers[graph] = self._layers.get(graph, 0) + 1
        return _mix(self._bases[graph] ^ self._layers[graph])


# The model_fn of each replica runs in a thread of its own, and sees only its own.
_KEYS: contextvars.ContextVar[Optional[DropoutKeys]] = contextvars.ContextVar("dropout_keys", default=None)


def _fingerprint(examples: tf.Tensor) -> tf.Tensor:
    """Hashes each example to 32 bits: which of its pixels are larger than another one of the same channel.

    Not the pixels themselves: TensorFlow's optimisations round a preprocessing differently under another strategy.

    Source: Dietzfelbinger, Universal hashing and k-wise independent random variables via integer arithmetic without
    primes, 1996 (the multiply-shift scheme).

    Args:
        examples: float, [batch, ...]; all but the first dimension are known.

    Returns:
        uint32, [batch].
    """
    size = examples.shape[1:].num_elements()
    channels = examples.shape[-1] if examples.shape.rank > 2 else 1
    flat = tf.cast(tf.reshape(examples, [-1, size]), tf.float32)
    # Three eighths of the image away: at a half, all would be compared twice.
    other = tf.roll(flat, channels * (size // channels * 3 // 8), axis=1)
    larger = flat - other > _ROUNDING * (tf.abs(flat) + tf.abs(other))
    factors = np.random.default_rng(0).integers(2**64, size=size, dtype=np.uint64)
    hashes = tf.reduce_sum(tf.cast(larger, tf.uint64) * factors, axis=-1)
    return tf.cast(tf.bitwise.right_shift(hashes, tf.constant(32, tf.uint64)), tf.uint32)


def _mix(values: tf.Tensor) -> tf.Tensor:
    """Scrambles 32-bit numbers: those that differ in one bit come out unrelated.

    Source: Appleby, MurmurHash3, 2011 (`fmix32`).

    Returns:
        uint32, of that shape.
    """
    values = tf.cast(values, tf.uint32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        values = (values ^ tf.bitwise.right_shift(values, tf.constant(shift, tf.uint32))) * factor
    return values ^ tf.bitwise.right_shift(values, tf.constant(16, tf.uint32))


def _global_moments(values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Mean, variance and unbiased variance of each channel, over the batches of all replicas.

    Each replica's variance is that about its own mean. In float64 they are put together, of which a mean has so many
    digits that its square is lost nothing of; of float32 the square of 255 leaves no digit of a variance of 1.

    Source: Chan, Golub and LeVeque, Algorithms for Computing the Sample Variance, 1983.

    Args:
        values: float, [batch, ..., channels].

    Returns:
        Each float [channels].
    """
    channels = values.shape[-1]
    axes = list(range(values.shape.rank - 1))
    count = tf.cast(tf.size(values) // channels, values.dtype)
    # A replica's part of a short batch may have no example.
    mean = tf.reduce_sum(values, axes) / tf.maximum(count, 1.0)
    squares = tf.reduce_sum(tf.math.squared_difference(values, tf.stop_gradient(mean)), axes)
    if tf.distribute.get_strategy().num_replicas_in_sync > 1 and tf.distribute.get_replica_context():
        own_count, own_mean, own_squares = (tf.cast(each, tf.float64) for each in (count, mean, squares))
        sums = [own_count * own_mean, own_squares + own_count * tf.square(own_mean), own_count[tf.newaxis]]
        total, squares, count = tf.split(_sum_over_replicas(tf.concat(sums, axis=0)), [channels, channels, 1])
        mean = total / count
        squares -= count * tf.square(mean)
        mean, squares, count = (tf.cast(each, values.dtype) for each in (mean, squares, count))
    variance = tf.maximum(squares / count, 0.0)
    return mean, variance, squares / tf.maximum(count - 1.0, 1.0)


@tf.custom_gradient
def _sum_over_replicas(values: tf.Tensor) -> tuple[tf.Tensor, Any]:
    """The gradient of a sum over replicas is the sum of their gradients."""
    context = tf.distribute.get_replica_context()

    def all_sum(tensor: tf.Tensor) -> tf.Tensor:
        # Of the other replicas TensorFlow would look for variables by names that only its own Graph knows, and fail:
        # "Unsuccessful at finding variable …/replica_1". It looks no further than here.
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.stop_gradient(tensor))

    return all_sum(values), all_sum
