"""Random numbers that depend only on the seed and on the example's position."""

from __future__ import annotations

import math

import tensorflow as tf

_BITS = 0xFFFFFFFFFFFFFFFF
_GOLDEN = 0x9E3779B97F4A7C15
_FACTORS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31
# Width of SIMD lanes. The remainder at a tensor's end is computed without SIMD, and may be rounded differently: with
# rows of whole lanes the result does not depend on an example's place in a batch.
_LANES = 16


class Draws:
    """Draws random numbers for each example of a batch.

    An example gets the same numbers in any batch, process and run.

    Source: Steele, Lea and Flood, Fast splittable pseudorandom number generators, 2014 (SplitMix64).

    Args:
        positions: int64, [batch]: the number of training examples before each, over all epochs.
        stream: Distinguishes examples of equal position.
    """

    def __init__(self, positions: tf.Tensor, seed: int, stream: int = 0) -> None:
        start = _mix_number(_mix_number(seed) + stream)
        # Mixed: otherwise the sequences of consecutive positions would overlap.
        self._keys = _mix(tf.cast(positions, tf.uint64) * _constant(_GOLDEN) + _constant(start))
        self._drawn = 0

    def flags(self) -> tf.Tensor:
        """Returns True or False with equal probability; bool [batch]."""
        # In a graph of TensorFlow 1 `==` compares objects.
        return tf.equal(self.integers(2), 1)

    def integers(self, count: int) -> tf.Tensor:
        """Returns uniform integers in [0, count); int32 [batch].

        Args:
            count: At most 2**31.
        """
        return tf.cast(_shifted(_shifted(self._next(), 32) * _constant(count), 32), tf.int32)

    def uniform(self, low: float, high: float) -> tf.Tensor:
        """Returns uniform numbers from `low` to `high`; float32 [batch]."""
        return low + (high - low) * _fraction(self._next())

    def normal(self, count: int) -> tf.Tensor:
        """Returns standard normal numbers; float32 [batch, count].

        Source: Box and Muller, A note on the generation of random normal deviates, 1958.
        """
        pairs = -(-count // (2 * _LANES)) * _LANES
        steps = tf.cast(tf.range(1, pairs + 1), tf.uint64) * _constant(_GOLDEN)
        bits = _mix(self._next()[:, tf.newaxis] + steps)
        # The upper 32 bits give one number, the lower ones the other.
        radius = tf.sqrt(-2.0 * tf.math.log(_fraction(bits) + 2.0**-25))
        angle = 2.0 * math.pi * _fraction(tf.bitwise.left_shift(bits, _constant(32)))
        return tf.concat([radius * tf.cos(angle), radius * tf.sin(angle)], axis=1)[:, :count]

    def _next(self) -> tf.Tensor:
        self._drawn += 1
        return _mix(self._keys + _constant(self._drawn * _GOLDEN & _BITS))


def _fraction(bits: tf.Tensor) -> tf.Tensor:
    """Converts the upper bits to [0, 1): float32 holds 24 of them exactly."""
    return tf.cast(_shifted(bits, 40), tf.float32) * 2.0**-24


def _mix(values: tf.Tensor) -> tf.Tensor:
    """Mixes the bits of uint64 values."""
    for shift, factor in _FACTORS:
        values = tf.bitwise.bitwise_xor(values, _shifted(values, shift)) * _constant(factor)
    return tf.bitwise.bitwise_xor(values, _shifted(values, _LAST_SHIFT))


def _mix_number(value: int) -> int:
    """Mixes the bits of a single number, as `_mix` does."""
    value = value + _GOLDEN & _BITS
    for shift, factor in _FACTORS:
        value = (value ^ value >> shift) * factor & _BITS
    return value ^ value >> _LAST_SHIFT


def _shifted(values: tf.Tensor, bits: int) -> tf.Tensor:
    return tf.bitwise.right_shift(values, _constant(bits))


def _constant(value: int) -> tf.Tensor:
    return tf.constant(value, tf.uint64)
