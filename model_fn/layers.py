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
    """Convolution, 2x2 max-pooling, bias and ReLU: equivalent to `Conv2D(activation="relu")`, `MaxPooling2D()`.

    Bias addition and ReLU are monotonic, so they commute with the maximum; after the pooling they, and the sum for the
    bias's gradient, touch a quarter of the elements. A training step of `mnist_cnn` costs a fifth less CPU; outputs are
    equal, gradients equal up to the order of summation. Where a pooling drops an odd row and column, the pixels that
    only they depend on are not computed: a step of `cifar_cnn` costs another seventh less.

    Args:
        filters: Number of output channels.
        kernel_size: Height and width of the kernel; no padding.
        read_by: Kernel sizes of the PooledConv2Ds that follow in sequence, if nothing else reads this layer's output.
            The rows and columns that their poolings drop are then not returned.
        **kwargs: Arguments of `tf.keras.layers.Layer`.
    """

    def __init__(self, filters: int, kernel_size: int, read_by: Sequence[int] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.filters = filters
        self.kernel_size = kernel_size
        self.read_by = tuple(read_by)

    def build(self, input_shape: tf.TensorShape) -> None:
        """Creates `kernel` and `bias`, initialised like those of Conv2D."""
        size = self.kernel_size
        self.kernel = self.add_weight("kernel", [size, size, input_shape[-1], self.filters])
        self.bias = self.add_weight("bias", [self.filters], initializer="zeros", experimental_autocast=False)
        super().build(input_shape)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Computes the layer.

        Args:
            inputs: float, [batch, height, width, channels].

        Returns:
            float, [batch, (height - kernel_size + 1) // 2, (width - kernel_size + 1) // 2, filters], without the rows
            and columns that the layers of `read_by` do not use.
        """
        pooled = tf.nn.max_pool2d(tf.nn.conv2d(self._used(inputs), self.kernel, 1, "VALID"), 2, 2, "VALID")
        outputs = tf.nn.relu(tf.nn.bias_add(tf.cast(pooled, self.bias.dtype), self.bias))
        return tf.cast(outputs, pooled.dtype)

    # AutoGraph would convert a search on numbers.
    @tf.autograph.experimental.do_not_convert
    def _used(self, inputs: tf.Tensor) -> tf.Tensor:
        """Crops the rows and columns that the poolings of this layer and of those in `read_by` drop."""
        sizes = inputs.shape.as_list()[1:3]
        used = [size and _used_size(size, (self.kernel_size, *self.read_by)) for size in sizes]
        # Not by indexing, whose gradient costs more than is saved.
        return inputs if used == sizes else tf.slice(inputs, [0, 0, 0, 0], [-1, *(size or -1 for size in used), -1])

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        config = {"filters": self.filters, "kernel_size": self.kernel_size, "read_by": self.read_by}
        return {**super().get_config(), **config}


def _used_size(size: int, kernel_sizes: Sequence[int]) -> int:
    """Returns how many rows, or columns, of an image a chain of convolutions with 2x2 pooling depends on."""
    left = size
    for kernel_size in kernel_sizes:
        left = (left - kernel_size + 1) // 2
        if left < 1:
            return size  # so that TensorFlow's error contains the true size
    for kernel_size in reversed(kernel_sizes):
        left = 2 * left + kernel_size - 1
    return left


# Relative: above float32's rounding error, below the step between two of 256 grey levels.
_ROUNDING = 1e-5


class SynchronizedBatchNormalization(tf.keras.layers.Layer):
    """Batch normalisation by the statistics of the global batch, under any strategy.

    On one device outputs, gradients and moving averages are those of `tf.keras.layers.BatchNormalization`, and the
    weights have the same names. With several replicas Keras's layer normalises each replica's batch separately, which
    changes the training; its `synchronized=True` cannot be built in an Estimator.

    Each call in training adds one all-reduce of 2 * channels + 1 float64 numbers to the forward pass and one to the
    backward pass. `parameter_server` has no global batch: there the layer behaves like Keras's.

    Args:
        momentum: Decay of the moving averages.
        epsilon: Added to the variance.
        **kwargs: Arguments of `tf.keras.layers.Layer`.
    """

    def __init__(self, momentum: float = 0.99, epsilon: float = 1e-3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.momentum = momentum
        self.epsilon = epsilon

    def build(self, input_shape: tf.TensorShape) -> None:
        """Creates `gamma`, `beta`, `moving_mean` and `moving_variance`, one number per channel."""
        shape = [input_shape[-1]]
        # Never cast to the compute dtype.
        no_cast: dict[str, Any] = {"experimental_autocast": False}
        self.gamma = self.add_weight("gamma", shape, initializer="ones", **no_cast)
        self.beta = self.add_weight("beta", shape, initializer="zeros", **no_cast)
        # Each replica computes the same averages, so nothing needs to be reduced.
        averages: dict[str, Any] = {
            **no_cast,
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
            training: True normalises by the batch and updates the moving averages; False normalises by the moving
                averages, as a layer that is not `trainable` always does.

        Returns:
            Shape and dtype of `inputs`.
        """
        # Sums over many numbers need the precision of the weights, even for inputs of lower precision.
        values = tf.cast(inputs, self.gamma.dtype)
        mean, variance = self.moving_mean, self.moving_variance
        if training and self.trainable:
            mean, variance, unbiased = _global_moments(values)
            # TensorFlow's fused operation, which Keras uses where it can, averages the unbiased variance.
            fused = inputs.shape.rank == 4 and values.dtype == tf.float32
            averaged = unbiased if fused else variance
            self.add_update(lambda: self._update(self.moving_mean, mean))
            self.add_update(lambda: self._update(self.moving_variance, averaged))
        outputs = tf.nn.batch_normalization(values, mean, variance, self.beta, self.gamma, self.epsilon)
        return tf.cast(outputs, inputs.dtype)

    def _update(self, average: tf.Variable, value: tf.Tensor) -> Any:
        return average.assign_sub((average - value) * (1.0 - self.momentum))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "momentum": self.momentum, "epsilon": self.epsilon}


# Layers that normalise by batch statistics.
BY_BATCH = (SynchronizedBatchNormalization, tf.keras.layers.BatchNormalization)


class StatelessDropout(tf.keras.layers.Layer):
    """Dropout whose mask depends only on the seed, the global step and the example.

    Each example keeps the same units on any replica, and a resumed training draws the same masks as an uninterrupted
    one: neither holds for `tf.keras.layers.Dropout`. An example is identified by the content of its image, since its
    position in a batch differs between strategies; images that differ only in brightness and contrast share a mask.

    Both built-in ways of training pass the images and the global step to the layer; a model_fn of your own calls its
    network within `dropout_keys`.

    Args:
        rate: Fraction of the units that is dropped, from 0 to less than 1.
        **kwargs: Arguments of `tf.keras.layers.Layer`.
    """

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = rate
        self.supports_masking = True

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Computes the layer.

        Args:
            inputs: float, [batch, ...]; all but the first dimension are known.
            training: True drops units; False returns `inputs`.

        Returns:
            Shape and dtype of `inputs`.

        Raises:
            UserCodeError: Called in training outside `dropout_keys`.
        """
        return self._drop(inputs) if training and self.rate else inputs

    # `call` itself keeps its signature, which Keras reads.
    @tf.autograph.experimental.do_not_convert
    def _drop(self, inputs: tf.Tensor) -> tf.Tensor:
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
        """Returns the constructor's arguments."""
        return {**super().get_config(), "rate": self.rate}


def dropout_keys(
    examples: tf.Tensor, seed: int, step: Optional[tf.Tensor] = None
) -> contextlib.AbstractContextManager[None]:
    """Identifies the examples of a batch to each `StatelessDropout` called in this context.

    Args:
        examples: float, [batch, ...]; a feature that distinguishes the examples, such as their images.
        seed: Seed of the masks.
        step: The global step, an integer scalar; None is that of an Estimator's graph.
    """
    return DropoutKeys(examples, seed, step).used()


class DropoutKeys:
    """Keys of one forward pass: a different one for each dropout layer and example.

    Args:
        examples: See `dropout_keys`.
        seed: See `dropout_keys`.
        step: See `dropout_keys`.
    """

    def __init__(self, examples: tf.Tensor, seed: int, step: Optional[tf.Tensor]) -> None:
        self._examples = examples
        self._seed = seed
        self._step = step
        # By graph: Keras also calls a layer in a scratch graph, to infer the shape of the outputs.
        self._bases: dict[tf.Graph, tf.Tensor] = {}
        self._layers: dict[tf.Graph, int] = {}

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Context in which dropout layers use these keys; entered again where the same pass continues."""
        token = _KEYS.set(self)
        try:
            yield
        finally:
            _KEYS.reset(token)

    def next(self) -> tf.Tensor:
        """Returns the next layer's keys, uint32, [batch]."""
        graph = tf.compat.v1.get_default_graph()
        if graph not in self._bases:
            step = tf.compat.v1.train.get_or_create_global_step() if self._step is None else self._step
            self._bases[graph] = _mix(_mix(_fingerprint(self._examples) ^ self._seed) ^ tf.cast(step, tf.uint32))
        self._layers[graph] = self._layers.get(graph, 0) + 1
        return _mix(self._bases[graph] ^ self._layers[graph])


# The model_fn of each replica runs in its own thread, and a context variable is local to a thread.
_KEYS: contextvars.ContextVar[Optional[DropoutKeys]] = contextvars.ContextVar("dropout_keys", default=None)


def _fingerprint(examples: tf.Tensor) -> tf.Tensor:
    """Hashes each example to 32 bits, by which of its pixels exceed another pixel of the same channel.

    Not by the pixels' values: TensorFlow's optimisations round a preprocessing differently under another strategy.
    Integers, such as the bits of a table's columns, which are read from files, are hashed as they are.

    Source: Dietzfelbinger, Universal hashing and k-wise independent random variables via integer arithmetic without
    primes, 1996 (the multiply-shift scheme).

    Args:
        examples: float or integer, [batch, ...]; all but the first dimension are known.

    Returns:
        uint32, [batch].
    """
    size = examples.shape[1:].num_elements()
    factors = np.random.default_rng(0).integers(2**64, size=size, dtype=np.uint64)
    if examples.dtype.is_integer:
        return _hash(tf.cast(tf.reshape(examples, [-1, size]), tf.uint64) * factors)
    channels = examples.shape[-1] if examples.shape.rank > 2 else 1
    flat = tf.cast(tf.reshape(examples, [-1, size]), tf.float32)
    # Three eighths of the image away: at a half, each pair would be compared twice.
    other = tf.roll(flat, channels * (size // channels * 3 // 8), axis=1)
    larger = flat - other > _ROUNDING * (tf.abs(flat) + tf.abs(other))
    return _hash(tf.cast(larger, tf.uint64) * factors)


def _hash(terms: tf.Tensor) -> tf.Tensor:
    hashes = tf.reduce_sum(terms, axis=-1)
    return tf.cast(tf.bitwise.right_shift(hashes, tf.constant(32, tf.uint64)), tf.uint32)


def _mix(values: tf.Tensor) -> tf.Tensor:
    """Scrambles integers to uint32: inputs that differ in one bit give unrelated outputs.

    Source: Appleby, MurmurHash3, 2011 (`fmix32`).
    """
    values = tf.cast(values, tf.uint32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        values = (values ^ tf.bitwise.right_shift(values, tf.constant(shift, tf.uint32))) * factor
    return values ^ tf.bitwise.right_shift(values, tf.constant(16, tf.uint32))


def _global_moments(values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns mean, variance and unbiased variance of each channel, over the batches of all replicas.

    Each replica's variance is about its own mean. They are combined in float64, in which squaring a mean loses no
    digits that matter; in float32 a mean of 255, squared, leaves no digit of a variance of 1.

    Source: Chan, Golub and LeVeque, Algorithms for Computing the Sample Variance, 1983.

    Args:
        values: float, [batch, ..., channels].

    Returns:
        Three tensors, float [channels].
    """
    channels = values.shape[-1]
    axes = list(range(values.shape.rank - 1))
    count = tf.cast(tf.size(values) // channels, values.dtype)
    # A replica's share of a short batch may be empty.
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
    """Sums over the replicas; the gradient is the sum of the replicas' gradients."""
    context = tf.distribute.get_replica_context()

    def all_sum(tensor: tf.Tensor) -> tf.Tensor:
        # stop_gradient ends TensorFlow's search for variables here. It would look up those of the other replicas by
        # names that only its own Graph knows, and fail: "Unsuccessful at finding variable …/replica_1".
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.stop_gradient(tensor))

    return all_sum(values), all_sum
