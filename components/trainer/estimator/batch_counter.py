"""Counts the examples that a model is fed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfx_estimator.components.trainer.user_input.rows import count_rows
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys


class BatchCounter:
    """Counts the examples that the replicas of this task are fed, whoever made the batches: a batch's first dimension.

    Where the graph knows it, this costs nothing; else one number for each replica is fetched in each step.
    """

    def __init__(self) -> None:
        # Of each replica: sizes that the graph knows, and tensors of the others.
        self._replicas: list[tuple[tf.Graph, list[int], list[tf.Tensor]]] = []
        self._parts: list[tuple[list[int], int]] = []
        self._fixed = 0
        self.changing: list[tf.Tensor] = []
        self.all: list[tf.Tensor] = []
        self.known = False

    def wrap(self, model_fn: Callable) -> Callable:
        """Makes a model_fn that notes what it is fed, with the same arguments: an Estimator goes by their names."""

        def counted(**arguments: Any) -> Any:
            self._note(**arguments)
            return model_fn(**arguments)

        counted.__signature__ = inspect.signature(model_fn)  # type: ignore[attr-defined]
        return counted

    def find(self) -> None:
        """Looks up the replicas of the present graph."""
        graph = tf.compat.v1.get_default_graph()
        replicas = [(fixed, tensors) for at, fixed, tensors in self._replicas if at is graph]
        self.changing = [tensors[0] for fixed, tensors in replicas if tensors and not fixed]
        self.all = self.changing + [tensor for _, tensors in replicas for tensor in tensors]
        self._fixed = sum(fixed[0] for fixed, _ in replicas if fixed)
        self._parts = [(fixed, len(tensors)) for fixed, tensors in replicas]

    def check(self, sizes: Sequence[int]) -> None:
        """Compares all parts of each replica's batch, by the values of `all`.

        Where they differ, nobody knows which one is the examples'.
        """
        found = iter(sizes[len(self.changing) :])
        parts = [{*fixed, *(int(next(found)) for _ in range(count))} for fixed, count in self._parts]
        self.known = bool(parts) and all(len(each) == 1 for each in parts)

    def size(self, sizes: Sequence[int]) -> int:
        """Returns the examples of this task's step, by the values of `changing`."""
        return self._fixed + int(sum(sizes))

    @tf.autograph.experimental.do_not_convert
    def _note(self, features: Any, mode: str, labels: Any = None, **_: Any) -> None:
        if mode != ModeKeys.TRAIN:
            return
        leaves = [leaf for leaf in tf.nest.flatten((features, labels)) if tf.is_tensor(leaf) and leaf.shape.rank != 0]
        sizes = [leaf.shape.rank and leaf.shape[0] for leaf in leaves]
        fixed = [size for size in sizes if size is not None]
        changing = [count_rows(leaf) for leaf, size in zip(leaves, sizes) if size is None]
        self._replicas.append((tf.compat.v1.get_default_graph(), fixed, changing))
