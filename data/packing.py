"""Parsed examples in memory: one matrix for each dtype, since taking rows costs as much for a column as for all."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any, Optional

import tensorflow as tf

Features = dict[str, tf.Tensor]


class Packing:
    """Packs the features of examples: numbers, and as many in each example.

    Args:
        spec: The features' tf.io.FixedLenFeature, by name.
    """

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._spec = dict(spec)
        by_dtype = sorted(spec, key=lambda name: spec[name].dtype.name)
        self._names = {
            dtype: list(names) for dtype, names in itertools.groupby(by_dtype, lambda name: spec[name].dtype.name)
        }
        self._shapes = {name: [*tf.TensorShape(each.shape)] for name, each in spec.items()}

    @property
    def row_bytes(self) -> int:
        """The size of a row in memory."""
        return sum(self._size(name) * each.dtype.size for name, each in self._spec.items())

    def parse(self, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        """Parses serialized examples, string [rows], to one matrix [rows, values] for each dtype."""
        parsed = tf.io.parse_example(serialized, self._spec)
        return {
            dtype: tf.concat([tf.reshape(parsed[name], [-1, self._size(name)]) for name in names], 1)
            for dtype, names in self._names.items()
        }

    def unpack(self, packed: Mapping[str, tf.Tensor]) -> Features:
        """Returns the features of packed rows, as tf.io.parse_example returns them."""
        features: Features = {}
        for dtype, names in self._names.items():
            if all(self._shapes[name] == [] for name in names):
                features.update(zip(names, tf.unstack(packed[dtype], len(names), axis=1)))
                continue
            columns = tf.split(packed[dtype], [self._size(name) for name in names], 1)
            features.update(
                (name, tf.reshape(column, [-1, *self._shapes[name]])) for name, column in zip(names, columns)
            )
        return features

    def _size(self, name: str) -> int:
        return math.prod(self._shapes[name])


def packing_of(spec: Mapping[str, Any]) -> Optional[Packing]:
    """Returns the packing of a feature spec; None if a feature is of words or bytes, or of the example's own length."""
    numbers = all(isinstance(each, tf.io.FixedLenFeature) and each.dtype != tf.string for each in spec.values())
    return Packing(spec) if spec and numbers else None
