"""Runs a step of a user's training, and an evaluation, under two strategies with the same weights and batch."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Optional

import numpy as np
import tensorflow as tf
from tensorflow.python.util import nest

from tfx_estimator.components.trainer.estimator.distribute import rebuild
from tfx_estimator.components.trainer.user_input import shared_batches
from tfx_estimator.components.trainer.user_input.input_check import Reading, Spec
from tfx_estimator.components.trainer.user_input.rows import KINDS, join_rows, take_rows
from tfx_estimator.pipeline.base.errors import TfxEstimatorError, UserCodeError
from tfx_estimator.pipeline.user_source.frames import reason

# If the first step changes nothing, as in a warm-up from 0, later ones may.
_STEPS = (1, 5)
# Relative tolerance of equal updates: rounding errors are a hundred times smaller.
_EQUAL = 1e-3
# Relative tolerance of a factor, which an optimizer's epsilon and several steps blur.
_EXACT = 1e-2
# Relative to the largest change of its kind, smaller ones are rounding, as of the bias before a batch normalisation.
_NEGLIGIBLE = 1e-5


class NotTriedError(Exception):
    """The trial is inconclusive: the user's code does not run on one CPU either."""


class Rows(NamedTuple):
    """Rows of a batch: the first ones, repeated `times` times; as a whole, or each of `parts` equal parts of them."""

    first: int
    times: int = 1
    parts: int = 1

    def of(self, leaf: Any) -> Any:
        """Takes the rows of one tensor."""
        step = self.first // self.parts
        taken = [
            take_rows(leaf, start, start + step) for start in range(0, self.first, step) for _ in range(self.times)
        ]
        return taken[0] if len(taken) == 1 else join_rows(taken)


@dataclass(frozen=True)
class Trial:
    """Trains and evaluates on one device and under several replicas.

    Args:
        make_spec: Calls the user's trainer_fn; once for each training, since an optimizer that is built outside of the
            model_fn belongs to one graph.
        many: A strategy with several replicas.
        one: A strategy of the same kind with one replica, so that variables have the same names.
        folder: Takes a checkpoint and events; the caller removes it.
    """

    make_spec: Callable[[], Spec]
    many: tf.distribute.Strategy
    one: tf.distribute.Strategy
    folder: str

    def compare_updates(self, reading: Reading, many_rows: Rows, one_rows: Rows) -> tuple[list[Change], list[str]]:
        """Trains on examples of the first batch; returns each variable's change, and those with unequal copies."""
        shared, alone = (self._input_fn(reading, rows) for rows in (many_rows, one_rows))
        for steps in _STEPS:
            try:
                many = self._train(self.many, shared, steps)
            except TfxEstimatorError:
                raise
            except Exception as error:
                self._train_alone(alone, steps)
                raise _fails(self.many, "train", error) from error
            one = self._train_alone(alone, steps, many.before)
            changes = compare(one, many, self.many.num_replicas_in_sync)
            # Copies of weights that have not changed yet are equal.
            if changes and any(map(np.any, map(many.change, many.trained))):
                break
        return changes, [*filter(many.is_apart, many.copies)]

    def evaluate(
        self, train: Reading, evaluation: Reading, strategy: tf.distribute.Strategy, whole: bool
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Evaluates the first batch with the same weights; returns the metrics on one device, and under the strategy.

        Args:
            train: A batch for the training step that makes the weights.
            strategy: The strategy of evaluation, with several replicas.
            whole: True if each replica takes the whole batch, not a part of it.
        """
        size, replicas = train.size, self.many.num_replicas_in_sync
        self._train_alone(self._input_fn(train, Rows(size // replicas * replicas)), steps=1, saves=True)
        size, replicas = evaluation.size, strategy.num_replicas_in_sync
        batch = Rows(size if whole else size // replicas * replicas)
        alone, shared = (
            self._input_fn(evaluation, rows, training=False)
            for rows in (batch, batch._replace(times=replicas if whole else 1))
        )
        try:
            one = self._estimator(eval_distribute=None).evaluate(alone, steps=1, name="one")
        except Exception as error:
            raise NotTriedError(f"the trial runs on a CPU, where the evaluation fails: {_cause(error)}") from error
        try:
            return one, self._estimator(eval_distribute=strategy).evaluate(shared, steps=1, name="many")
        except Exception as error:
            raise _fails(strategy, "evaluate", error) from error

    def _train_alone(self, *args: Any, **kwargs: Any) -> Training:
        try:
            return self._train(self.one, *args, **kwargs)
        except Exception as error:
            raise NotTriedError(f"the trial runs on a CPU, where training fails: {_cause(error)}") from error

    def _train(
        self,
        strategy: tf.distribute.Strategy,
        input_fn: Callable[..., Any],
        steps: int,
        start: Optional[dict[str, Any]] = None,
        saves: bool = False,
    ) -> Training:
        """Trains from the values in `start`, or the initial ones."""
        estimator = self._estimator(train_distribute=strategy, save_checkpoints_steps=steps if saves else None)
        values = _ValuesHook(start or {})
        estimator.train(input_fn, steps=steps, hooks=[values])
        return values.training

    def _estimator(self, **changes: Any) -> tf.estimator.Estimator:
        user = self.make_spec()["estimator"]
        return rebuild(
            user, model_dir=self.folder, tf_random_seed=user.config.tf_random_seed or shared_batches.SEED, **changes
        )

    def _input_fn(self, reading: Reading, rows: Rows, training: bool = True) -> Callable[..., Any]:
        """Makes an input_fn that repeats rows of the first batch; from a generator, as a graph may not hold them."""
        specs = nest.flatten(reading.element_spec)

        def repeat() -> Iterator[tuple[Any, ...]]:
            while True:
                # Copies: TensorFlow takes ownership of the arrays' memory, and may write to it.
                yield tuple(copy.deepcopy(reading.batches[0]))

        def pack(*leaves: Any) -> Any:
            rest = iter(leaves)
            chosen = [rows.of(next(rest)) if isinstance(spec, KINDS) else None for spec in specs]
            return nest.pack_sequence_as(reading.element_spec, chosen)

        def input_fn(input_context: Optional[tf.distribute.InputContext] = None) -> tf.data.Dataset:
            signature = tuple(spec for spec in specs if isinstance(spec, KINDS))
            dataset = tf.data.Dataset.from_generator(repeat, output_signature=signature).map(pack)
            context = input_context or tf.distribute.InputContext()
            return shared_batches.split_batches(dataset, context, training=training)

        return input_fn


class _ValuesHook(tf.compat.v1.train.SessionRunHook):
    """Sets variables before the first step, and records all of them before and after."""

    def __init__(self, start: dict[str, Any]) -> None:
        self._start = start

    def begin(self) -> None:
        variables = tf.compat.v1.global_variables()
        # In begin: some strategies add ops for reading, and the graph is finalized later.
        self._values = {each.op.name: tf.identity(each) for each in variables if each.dtype.base_dtype.is_floating}
        self._copies = {
            each.op.name: [tf.identity(copy) for copy in getattr(each, "values", ())[1:]]
            for each in tf.compat.v1.trainable_variables()
            if each.op.name in self._values
        }

    def after_create_session(self, session: tf.compat.v1.Session, coord: Any) -> None:
        for name in self._start.keys() & self._values.keys():
            # The initializer's op has this name under every strategy.
            assign = session.graph.get_operation_by_name(f"{name}/Assign")
            session.run(assign, {assign.inputs[1]: self._start[name]})
        self._before = session.run(self._values)

    def end(self, session: tf.compat.v1.Session) -> None:
        after, copies = session.run((self._values, self._copies))
        self.training = Training([*copies], self._before, after, copies)


def _fails(strategy: tf.distribute.Strategy, verb: str, error: Exception) -> UserCodeError:
    section = "train" if verb == "train" else "eval"
    return UserCodeError(
        f"the Estimator of trainer_fn {verb}s on one device, but not under {type(strategy).__name__}: {_cause(error)}",
        expected=f"an Estimator that {verb}s under trainer.distribution.{section}.strategy",
        todo="make the optimizer inside the model_fn, from tf.compat.v1.train; or choose another strategy"
        if verb == "train"
        else "choose another strategy for it, such as one_device",
    )


def _cause(error: Exception) -> str:
    """Returns type and first line of an error's reason."""
    return ": ".join(reason(error)).splitlines()[0]


class Training(NamedTuple):
    """The values of all variables by name, before and after a training; after it, those of trained ones' copies."""

    trained: Sequence[str]
    before: dict[str, np.ndarray]
    after: dict[str, np.ndarray]
    copies: Mapping[str, Sequence[np.ndarray]] = MappingProxyType({})

    def change(self, name: str) -> np.ndarray:
        """Returns the change of a variable."""
        return self.after[name].astype(np.float64) - self.before[name]

    def is_apart(self, name: str) -> bool:
        """Returns True if copies of a trained variable differ; of one that is not a number they do not."""
        noise = _EQUAL * _norm(self.change(name)) + float(np.finfo(np.float32).eps) * _norm(self.after[name])
        return any(_norm(each.astype(np.float64) - self.after[name]) > noise for each in self.copies[name])


class Change(NamedTuple):
    """Compares a variable's update under several replicas with that on one device.

    Attributes:
        name: The variable, and the optimizer's slot that was compared.
        ratio: Norm of the update / norm of that on one device.
        difference: Norm of the element-wise difference of the two / norm of the update on one device.
        scale: 1 if both are equal; N or 1/N if exactly scaled by it, with N replicas; otherwise None.
    """

    name: str
    ratio: float
    difference: float
    scale: Optional[float]


def compare(one: Training, many: Training, replicas: int) -> list[Change]:
    """Compares two trainings from the same weights: on one device, and under several replicas.

    Returns:
        A change for each variable that changed. If a variable has slots, only these count: the weights' update by Adam
        does not depend on the gradients' scale.
    """
    kinds: dict[str, dict[str, str]] = defaultdict(dict)
    for name in filter(many.after.__contains__, one.after):
        owner = max((each for each in one.trained if f"/{each}/" in f"/{name}/"), key=len, default="")
        if owner:
            kinds["" if name == owner else name.rsplit("/", 1)[-1]][owner] = name
    found: dict[str, list[Change]] = defaultdict(list)
    # The weights, whose slot is "", come last.
    for slot, names in sorted(kinds.items(), reverse=True):
        largest = max(_norm(each.change(name)) for each in (one, many) for name in names.values())
        for owner, name in names.items():
            if not largest or (not slot and owner in found):
                continue
            change, other = one.change(name), many.change(name)
            noise = _NEGLIGIBLE * largest + float(np.finfo(np.float32).eps) * _norm(one.after[name])
            changes = found[owner]  # an entry even without a change: the weights are then skipped
            # Negated, so that NaN counts as a change.
            if not max(_norm(change), _norm(other)) <= noise:
                label = f"`{owner}` (the optimizer's `{slot}`)" if slot else f"`{owner}`"
                norm = _norm(change) or 1e-300
                scale = scale_of(change, other, replicas, noise, (1, 2) if slot else (1,))
                changes.append(Change(label, _norm(other) / norm, _norm(other - change) / norm, scale))
    # Of each variable the most significant change: one scaled by N or 1/N, then an unequal one.
    return [
        max(changes, key=lambda each: (each.scale not in (None, 1), each.scale is None, each.difference))
        for changes in found.values()
        if changes
    ]


def scale_of(
    one: np.ndarray, many: np.ndarray, replicas: int, noise: float = 0.0, powers: Sequence[int] = (1,)
) -> Optional[float]:
    """Returns the factor of an array under several replicas, as in `Change.scale`.

    Args:
        noise: Norm of a negligible difference.
        powers: Powers of the factor to try; 2 for slots that accumulate squares.
    """
    if _norm(many - one) <= _EQUAL * _norm(one) + noise:
        return 1.0
    for factor in (1 / replicas, float(replicas)):
        for expected in (factor**power * one for power in powers):
            if _norm(many - expected) <= _EXACT * _norm(expected) + noise:
                return factor
    return None


def _norm(array: np.ndarray) -> float:
    return float(np.linalg.norm(array))
