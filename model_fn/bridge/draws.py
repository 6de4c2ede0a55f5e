"""Random operations that draw the same numbers in an Estimator and in the model converted from it."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_library

_RANDOM = re.compile(r"(?:Stateful|Stateless)?(?:Random)?(Uniform|(?:Standard|Truncated)?Normal)(?:V2)?")


@dataclasses.dataclass
class _Draw:
    """A random operation: is it normal, and how many numbers it draws for an example; its place among those alike."""

    of: tuple[bool, int]
    index: int = 0
    was_used: bool = False


class Draws:
    """Replaces what random operations draw, by numbers that depend on the step and the operations' order in `made`."""

    def __init__(self) -> None:
        self.step = self._traced = 0
        self.made: list[_Draw] = []

    def keep_used(self) -> None:
        """Numbers the operations of the steps that were run: a graph has others, for initial values and shapes."""
        used, self.made = [each for each in self.made if each.was_used], []
        for each in used:
            self._add(each)

    @contextlib.contextmanager
    def fixed(self) -> Iterator[None]:
        """Replaces operations that are created in this context, in graphs and in traced functions."""
        apply = op_def_library._apply_op_helper

        def apply_fixed(kind: str, name: Any = None, **inputs: Any) -> Any:
            *found, outputs = apply(kind, name, **inputs)
            match = _RANDOM.fullmatch(kind)
            return (*found, [self._drawn("Normal" in kind, outputs[0])] if match else outputs)

        op_def_library._apply_op_helper = apply_fixed
        try:
            yield
        finally:
            op_def_library._apply_op_helper = apply

    def _add(self, draw: _Draw) -> None:
        draw.index = sum(each.of == draw.of for each in self.made)
        self.made.append(draw)

    def _drawn(self, is_normal: bool, drawn: tf.Tensor) -> tf.Tensor:
        if self._traced != self.step:
            # A step with other shapes is traced again.
            self._traced, self.made = self.step, []
        made = _Draw((is_normal, drawn.shape[1:].num_elements() or 0))
        self._add(made)

        def numbers(shape: np.ndarray) -> np.ndarray:
            made.was_used = True
            generator = np.random.default_rng([self.step, made.index, made.of[1]])
            draw: Callable[..., np.ndarray] = generator.standard_normal if is_normal else generator.random
            return draw(shape, np.float32).astype(drawn.dtype.as_numpy_dtype)

        fixed = tf.numpy_function(numbers, [tf.shape(drawn)], drawn.dtype)
        fixed.set_shape(drawn.shape)
        return fixed
