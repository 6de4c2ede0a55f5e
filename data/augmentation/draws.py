"""Numbers of chance that depend on the seed and on the example's position, and on nothing else."""

from __future__ import annotations

import math

import tensorflow as tf

_BITS = 0xFFFFFFFFFFFFFFFF
_GOLDEN = 0x9E3779B97F4A7C15
_FACTORS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31
# Numbers that a processor computes at once. What is left over at a tensor's end it computes one by one, and may round
# otherwise: with whole rows of them an example's place in a batch makes no difference.
_LANES = 16


class Draws:
    """Draws for a batch of examples, one number after another for each.

    An example gets the same numbers in whichever batch, process and run it is read.

    Source: Steele, Lea and Flood, Fast splittable pseudorandom number generators, 2014 (SplitMix64).

    Args:
        positions: int64, [batch]: how many examples come before it in training, over all epochs.
        stream: Tells apart examples of equal position.
    """

    def __init__(self, positions: tf.Tensor, seed: int, stream: int = 0) -> None:
        start = _mix_number(_mix_number(seed) + stream)
        # A position's numbers would be the next one's too, but for this.
        self._keys = _mix(tf.cast(positions, tf.uint64) * _constant(_GOLDEN) + _constant(start))
        self._drawn = 0

    def flags(self) -> tf.Tensor:
        """Returns true or false, equally likely; bool [batch]."""
        # In a graph of TensorFlow 1 `==` compares objects.
        return tf.equal(self.integers(2), 1)

    def integers(self, count: int) -> tf.Tensor:
        """Returns numbers from 0 to less than `count`, equally likely; int32 [batch].

        Args:
            count: At most 2**31.
        """
        return tf.cast(_shifted(_shifted(self._next(), 32) * _constant(count), 32), tf.int32)

    def uniform(self, low: float, high: float) -> tf.Tensor:
        """Returns numbers from `low` to `high`; float32 [batch]."""
        return low + (high - low) * _fraction(self._next())

    def normal(self, count: int) -> tf.Tensor:
        """Returns numbers of mean 0 and standard deviation 1; float32 [batch, count].

        Source: Box and Muller, A note on the generation of random normal deviates, 1958.
        """
        pairs = -(-count // (2 * _LANES)) * _LANES
        steps = tf.cast(tf.range(1, pairs + 1), tf.uint64) * _constant(_GOLDEN)
        bits = _mix(self._next()[:, tf.newaxis] + steps)
        # Of 64 bits, the upper are one number and the lower the other.
        radius = tf.sqrt(-2.0 * tf.math.log(_fraction(bits) + 2.0**-25))
        angle = 2.0 * math.pi * _fraction(tf.bitwise.left_shift(bits, _constant(32)))
        return tf.concat([radius * tf.cos(angle), radius * tf.sin(angle)], axis=1)[:, :count]

    def _next(self) -> tf.Tensor:
        self._drawn += 1
        return _mix(self._keys + _constant(self._drawn * _GOLDEN & _BITS))


def _fraction(bits: tf.Tensor) -> tf.Tensor:
    """From 0 to less than 1, of the upper bits: float32 holds 24 of them exactly."""
    return tf.cast(_shifted(bits, 40), tf.float32) * 2.0**-24


def _mix(values: tf.Tensor) -> tf.Tensor:
    """Scrambles uint64: values that differ in one bit come out unrelated."""
    for shift, factor in _FACTORS:
        values = tf.bitwise.bitwise_xor(values, _shifted(values, shift)) * _constant(factor)
    return tf.bitwise.bitwise_xor(values, _shifted(values, _LAST_SHIFT))


def _mix_number(value: int) -> int:
    """As `_mix`, of a single number."""
    value = value + _GOLDEN & _BITS
    for shift, factor in _FACTORS:
        value = (value ^ value >> shift) * factor & _BITS
    return value ^ value >> _LAST_SHIFT


def _shifted(values: tf.Tensor, bits: int) -> tf.Tensor:
    return tf.bitwise.right_shift(values, _constant(bits))


def _constant(value: int) -> tf.Tensor:
    return tf.constant(value, tf.uint64)
