"""One step of anyone's training under two strategies, from the same weights, on the same batch; and an evaluation."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from typing import Any, Optional

import tensorflow as tf
from tensorflow.python.util import nest

from tfx_estimator.components.trainer.estimator.distribute import rebuild
from tfx_estimator.components.trainer.replica_check.changes import Changes, compare
from tfx_estimator.components.trainer.replica_check.inputs import Batch, Spec
from tfx_estimator.components.trainer.user_input import shared_batches as shared_batches
from tfx_estimator.components.trainer.user_input.rows import KINDS, join_rows, size_of, take_rows
from tfx_estimator.pipeline.errors import TfxEstimatorError, UserCodeError

# Steps: where the first one changes nothing, as in a warm-up from 0, later ones may.
_STEPS = (1, 5)


class NotTriedError(Exception):
    """The trial says nothing of the user's code: it does not run on one CPU either."""


class Trial:
    """Trains a step twice, and compares what changed.

    Args:
        make_spec: Calls the user's trainer_fn: once for each training, since an optimizer that is built outside of the
            model_fn belongs to one graph.
        many: A strategy of several replicas.
        one: One of the same kind, of one replica: its variables bear the same names.
        folder: For checkpoints; removed by the caller.
    """

    def __init__(
        self,
        make_spec: Callable[[], Spec],
        many: tf.distribute.Strategy,
        one: tf.distribute.Strategy,
        folder: str,
    ) -> None:
        self._make_spec = make_spec
        self._many = many
        self._one = one
        self._folder = folder

    def compare(self, element_spec: Any, batch: Batch, seed: int = 0, copies: bool = False) -> Changes:
        """Trains on one batch, under several replicas and on one device.

        Args:
            element_spec: Of the data set that the batch is from.
            batch: Flat.
            seed: Added to the user's own.
            copies: Have all replicas take the same examples, the first of the batch: what they compute of their own
                part, such as the statistics of a batch normalisation, is then that of the whole.

        Returns:
            How much more each part of the model changed under several replicas, with each of its optimizer's slots;
            empty where nothing changed.

        Raises:
            NotTriedError: Training does not work on one device either.
            UserCodeError: Training works on one device alone.
        """
        options = {"element_spec": element_spec, "batch": batch, "seed": seed, "copies": copies}
        for steps in _STEPS:
            many, one = (self._path(name, seed, copies, steps) for name in ("many", "one"))
            try:
                self._train(self._many, many, steps=steps, **options)
            except TfxEstimatorError:
                raise
            except Exception as error:
                self._train_alone(one, steps=steps, **options)
                raise _fails(self._many, "train", error) from error
            names = self._train_alone(one, steps=steps, start=many, **options)
            if changes := compare(one, many, steps, names):
                return changes
        return {}

    def noise(self, element_spec: Any, batch: Batch) -> Changes:
        """Trains on one device once more after `compare` with copies: examples in another order, and another seed.

        Args:
            element_spec: As for `compare`.
            batch: As for `compare`.

        Returns:
            How much of a change is chance, as in dropout, or rounding, as where Adam divides next to nothing by itself.
        """
        for steps in _STEPS:
            one, other = (self._path("one", seed, True, steps) for seed in (0, 1))
            options = {"element_spec": element_spec, "batch": batch, "seed": 1, "copies": True, "turn": True}
            names = self._train_alone(other, steps=steps, start=one, **options)
            if changes := compare(one, other, steps, names):
                return changes
        return {}

    def evaluate(
        self, train: tuple[Any, Batch], evaluation: tuple[Any, Batch], strategy: tf.distribute.Strategy
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Evaluates one batch with the same weights, on one device and under several replicas.

        Args:
            train: The element_spec and a batch of training: a step of it makes the weights.
            evaluation: The same of an evaluation.
            strategy: For it, of several replicas.

        Returns:
            The metrics on one device, and under the strategy.

        Raises:
            NotTriedError: It does not work on one device either.
            UserCodeError: It works on one device alone.
        """
        folder = self._path("evaluated", 0, False, 1)
        self._train_alone(folder, *train, steps=1)
        try:
            alone = self._evaluate(None, folder, *evaluation)
        except Exception as error:
            raise NotTriedError(f"it is tried on a CPU, and one CPU does not evaluate it: {said(error)}") from error
        try:
            return alone, self._evaluate(strategy, folder, *evaluation)
        except Exception as error:
            raise _fails(strategy, "evaluate", error) from error

    def _path(self, name: str, seed: int, copies: bool, steps: int) -> str:
        return os.path.join(self._folder, f"{name}-{seed}-{int(copies)}-{steps}")

    def _train_alone(self, *args: Any, **kwargs: Any) -> list[str]:
        try:
            return self._train(self._one, *args, **kwargs)
        except Exception as error:
            raise NotTriedError(f"it is tried on a CPU, and one CPU does not train it: {said(error)}") from error

    def _train(
        self,
        strategy: tf.distribute.Strategy,
        folder: str,
        element_spec: Any,
        batch: Batch,
        steps: int,
        seed: int = 0,
        start: Optional[str] = None,
        **order: bool,
    ) -> list[str]:
        """Trains, from the initial weights of another folder where one is named; returns the trained variables."""
        if start is not None:
            tf.io.gfile.makedirs(folder)
            for path in tf.io.gfile.glob(os.path.join(start, "model.ckpt-0.*")):
                tf.io.gfile.copy(path, os.path.join(folder, os.path.basename(path)))
            tf.compat.v1.train.update_checkpoint_state(folder, os.path.join(folder, "model.ckpt-0"))
        spec = self._make_spec()

        def input_fn(input_context: Any = None) -> tf.data.Dataset:
            dataset = _repeat(element_spec, batch, self._many.num_replicas_in_sync, **order)
            return shared_batches.own_parts(dataset, input_context)

        estimator = rebuild(
            spec["estimator"],
            model_dir=folder,
            tf_random_seed=(spec["estimator"].config.tf_random_seed or 0) + seed,
            train_distribute=strategy,
            save_checkpoints_steps=steps,
            keep_checkpoint_max=2,
        )
        names = _Names()
        estimator.train(input_fn, max_steps=steps, hooks=[names])
        return names.found

    def _evaluate(
        self, strategy: Optional[tf.distribute.Strategy], folder: str, element_spec: Any, batch: Batch
    ) -> dict[str, Any]:
        def input_fn(input_context: Any = None) -> tf.data.Dataset:
            dataset = _repeat(element_spec, batch, self._many.num_replicas_in_sync).take(1)
            return (
                dataset if input_context is None else shared_batches.own_parts(dataset, input_context, training=False)
            )

        estimator = rebuild(self._make_spec()["estimator"], model_dir=folder, eval_distribute=strategy)
        return estimator.evaluate(input_fn, name="many" if strategy else "one")


class _Names(tf.estimator.SessionRunHook):
    """Takes note of the variables that are trained."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def begin(self) -> None:
        names = (variable.op.name for variable in tf.compat.v1.trainable_variables())
        # A partitioned variable is saved as a whole.
        self.found = [name.split("/part_")[0] for name in names]


def _repeat(
    element_spec: Any, batch: Batch, replicas: int, copies: bool = False, turn: bool = False
) -> tf.data.Dataset:
    """A data set of one batch, over and over, outside of the graph: it may be too large for one."""
    specs = nest.flatten(element_spec)
    signature = tuple(spec for spec in specs if isinstance(spec, KINDS))
    own = size_of(batch[0]) // replicas

    def rows(leaf: Any) -> Any:
        if not copies:
            return take_rows(leaf, 0, own * replicas)
        # Turned by half: the same examples in another order.
        split = own // 2 if turn else 0
        part = [take_rows(leaf, split, own), take_rows(leaf, 0, split)] if split else [take_rows(leaf, 0, own)]
        return join_rows(part * replicas)

    def pack(*leaves: Any) -> Any:
        rest = iter(leaves)
        chosen = [rows(next(rest)) if isinstance(spec, KINDS) else None for spec in specs]
        return nest.pack_sequence_as(element_spec, chosen)

    def again() -> Iterator[tuple[Any, ...]]:
        while True:
            # Copies, as TensorFlow takes over the arrays' memory, and may write to it.
            yield tuple(copy.deepcopy(value) for value in batch)

    return tf.data.Dataset.from_generator(again, output_signature=signature).map(pack)


def _fails(strategy: tf.distribute.Strategy, verb: str, error: Exception) -> UserCodeError:
    section = "train" if verb == "train" else "eval"
    return UserCodeError(
        f"the Estimator of trainer_fn {verb}s on one device, but not under {type(strategy).__name__}: {said(error)}",
        expected=f"an Estimator that {verb}s under trainer.distribution.{section}.strategy",
        todo="make the optimizer inside the model_fn, from tf.compat.v1.train; or choose another strategy"
        if verb == "train"
        else "choose another strategy for it, such as one_device",
    )


def said(error: Exception) -> str:
    """Finds the line of TensorFlow's message that says what happened.

    Args:
        error: Of TensorFlow or the user's code.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    name = type(error).__name__
    if "in user code" in str(error):
        return next((line for line in lines if line.startswith(f"{name}:")), name)
    skipped = ('File "', "Detected at", "Graph execution error", "Node:", "[[", "Original stack")
    told = [line for line in lines if not line.startswith(skipped)]
    return f"{name}: {told[0] if told else ''}"
