"""Makes RNG state and Keras layer names reproducible before each call of user code.

A RunConfig's `tf_random_seed` reaches what TensorFlow draws in an Estimator's graph. Keras draws its seeds from a
generator of its own, one for each thread, and the model_fn of each replica is called in another thread.
"""

from __future__ import annotations

import contextvars
import functools
import hashlib
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.components.trainer.patch import Patch
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.config.trainer import TrainerSection

# More than a layer draws in a step. A generator can skip 2 ** 56 places, which are those of 2 ** 26 steps.
_DRAWS = 2**30
# Of the step in a checkpoint of an Estimator, and in one as `model_to_estimator` writes it by default.
_STEPS = (tf.compat.v1.GraphKeys.GLOBAL_STEP, "estimator_global_step/.ATTRIBUTES/VARIABLE_VALUE")
# The step that a model_fn goes on from, and the place of its worker; each replica's is called in a thread of its own.
_PLACE: contextvars.ContextVar[tuple[int, int]] = contextvars.ContextVar("place", default=(0, 0))


def apply(section: Optional[TrainerSection], worker: int = 0) -> None:
    """Has every Estimator of this process draw by the declared seed. Must run before any TensorFlow op.

    A seed of the user's own, in a RunConfig, comes first; without a declaration it is the only one.
    """
    for patch in make_patches(section.seed if section else None, worker):
        patch.apply()
    if section and section.deterministic:
        tf.config.experimental.enable_op_determinism()


def begin(section: Optional[TrainerSection]) -> None:
    """Makes a user's function find what it would find in a fresh process. Must run before each of its calls.

    Args:
        section: The declared trainer, whose seed is that of TensorFlow, Keras, NumPy and Python; None is no seed.
    """
    # Of layers that are built outside of a graph; checkpoints have their names.
    tf.keras.backend.reset_uids()
    if section:
        tf.keras.utils.set_random_seed(section.seed)


def go_on(section: TrainerSection, model: tf.keras.Model, step: int, worker: int = 0) -> None:
    """Has layers draw what no other step and worker has drawn: before a training goes on, and its step is traced.

    In the scope of the strategy.

    What they draw follows from the seeds, which are those of every worker, and from how often they were called: after a
    restart it would be that of the first steps again.

    Args:
        worker: Place of this process in its cluster: see `TaskSpec.place`. At step 0 nothing is changed for the chief.
    """
    if not step and not worker:
        return
    # Of operations with a state, as Dropout's, also of those with a seed of their own.
    tf.random.set_seed(_later(section.seed, step, worker))
    for layer in model._flatten_layers():
        chance: Any = getattr(layer, "_random_generator", None)
        if not hasattr(chance, "_maybe_init"):
            continue
        # One that nothing but training calls has none so far.
        chance._maybe_init()
        # Of the Random… layers, which keep it out of checkpoints.
        if isinstance(chance._generator, tf.random.Generator):
            chance._generator.skip(step * _DRAWS)
            if worker:
                # A state is the counter's low half, its high half, and the key: no skip gets to the high half.
                _add(chance._generator.state, [0, worker, 0])


def _add(state: tf.Variable, values: list[int]) -> None:
    """Adds to a variable, in each replica of this process."""

    def update(part: tf.Variable) -> tf.Tensor:
        return part.assign_add(tf.constant(values, part.dtype))

    if tf.distribute.has_strategy():
        tf.distribute.get_strategy().extended.update(state, update)
    else:
        update(state)


def make_patches(seed: Optional[int], worker: int = 0) -> tuple[Patch, ...]:
    """What `apply` changes in TensorFlow."""
    return (
        Patch(
            "tensorflow_estimator.python.estimator.estimator:maybe_overwrite_model_dir_and_session_config",
            functools.partial(_with_seed, seed),
            reason="with a RunConfig that has no seed each run draws other weights, whatever trainer.seed is",
            until="there is no tf.estimator",
        ),
        Patch(
            "tensorflow_estimator.python.estimator.estimator:Estimator._call_model_fn",
            functools.partial(_draw_by_seed, worker),
            reason="the seed of a RunConfig does not reach the initial weights and the masks of Keras layers",
            until="there is no tf.estimator",
        ),
        Patch(
            "tensorflow.python.framework.random_seed:get_seed",
            _get_seed,
            reason="an Estimator that goes on draws as in its first steps, and each of its workers as the chief does",
            until="there is no tf.estimator",
        ),
    )


def _with_seed(seed: Optional[int], original: Any, *args: Any, **kwargs: Any) -> tf.estimator.RunConfig:
    config = original(*args, **kwargs)
    return config if seed is None or config.tf_random_seed is not None else config.replace(tf_random_seed=seed)


def _draw_by_seed(
    worker: int,
    original: Any,
    self: tf.estimator.Estimator,
    features: Any,
    labels: Any,
    mode: str,
    config: tf.estimator.RunConfig,
) -> tf.estimator.EstimatorSpec:
    if config.tf_random_seed is not None:
        # In the thread of the replica; the seed of the graph is this one already.
        tf.keras.utils.set_random_seed(config.tf_random_seed)
    trains = mode == ModeKeys.TRAIN
    # Initial weights are drawn by the chief alone, whatever the others would draw.
    token = _PLACE.set((_step_of(self.latest_checkpoint()), worker) if trains else (0, 0))
    try:
        return original(self, features, labels, mode, config)
    finally:
        _PLACE.reset(token)


def _get_seed(original: Any, op_seed: Optional[int]) -> tuple[Optional[int], Optional[int]]:
    """The two seeds of an operation; of the worker, and the steps from the one on, that a model_fn is called for."""
    seed, own = original(op_seed)
    place = _PLACE.get()
    return (_later(seed, *place) if any(place) and seed is not None else seed), own


def _step_of(checkpoint: Optional[str]) -> int:
    """The global step that a checkpoint of an Estimator is of; 0 of none."""
    if not checkpoint:
        return 0
    reader = tf.train.load_checkpoint(checkpoint)
    return next((int(reader.get_tensor(name)) for name in _STEPS if reader.has_tensor(name)), 0)


def _later(seed: int, step: int, worker: int) -> int:
    """Returns the seed of a worker of a training that goes on from a step."""
    return int.from_bytes(hashlib.sha256(f"{seed} {step} {worker}".encode()).digest()[:4], "big") >> 1
