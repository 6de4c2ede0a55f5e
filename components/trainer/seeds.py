"""Makes RNG state and Keras layer names reproducible before each call of user code.

A RunConfig's `tf_random_seed` seeds TensorFlow's ops in an Estimator's graph. Keras draws its seeds from its own
generator, one for each thread, and the model_fn of each replica is called in another thread.
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

# More than a layer draws in a step. A generator can skip 2 ** 56 draws, enough for 2 ** 26 steps.
_DRAWS = 2**30
# Names of the step in an Estimator's checkpoint, and in one that `model_to_estimator` writes by default.
_STEPS = (tf.compat.v1.GraphKeys.GLOBAL_STEP, "estimator_global_step/.ATTRIBUTES/VARIABLE_VALUE")
# The step that a model_fn resumes from, and its worker's `TaskSpec.place`; each replica's runs in its own thread.
_PLACE: contextvars.ContextVar[tuple[int, int]] = contextvars.ContextVar("place", default=(0, 0))


def apply(section: Optional[TrainerSection], worker: int = 0) -> None:
    """Seeds every Estimator of this process with the declared seed. Must run before any TensorFlow op.

    A seed in the user's RunConfig takes precedence; without a declaration it is the only one.
    """
    for patch in make_patches(section.seed if section else None, worker):
        patch.apply()
    if section and section.deterministic:
        tf.config.experimental.enable_op_determinism()


def begin(section: Optional[TrainerSection]) -> None:
    """Resets layer names and seeds to those of a fresh process. Must run before each call of a user's function.

    Args:
        section: The declared trainer, whose seed is for TensorFlow, Keras, NumPy and Python; None sets no seed.
    """
    # Names of layers outside of a graph, which are part of checkpoints.
    tf.keras.backend.reset_uids()
    if section:
        tf.keras.utils.set_random_seed(section.seed)


def resume(section: TrainerSection, model: tf.keras.Model, step: int, worker: int = 0) -> None:
    """Moves layers to random numbers that no other step and worker draws.

    Must run in the strategy's scope, before a training resumes and its step is traced. Random numbers depend on the
    seeds, which all workers share, and on the number of calls: after a restart they would be those of the first steps.

    Args:
        worker: `TaskSpec.place` of this process. The chief's seeds are unchanged at step 0.
    """
    if not step and not worker:
        return
    # For stateful ops, such as Dropout's, also those with their own seed.
    tf.random.set_seed(_later(section.seed, step, worker))
    for layer in model._flatten_layers():
        rng: Any = getattr(layer, "_random_generator", None)
        if not hasattr(rng, "_maybe_init"):
            continue
        # A layer that only training calls has no generator yet.
        rng._maybe_init()
        # The Random… layers have one, which is not part of checkpoints.
        if isinstance(rng._generator, tf.random.Generator):
            rng._generator.skip(step * _DRAWS)
            if worker:
                # The state is the counter's low half, its high half, and the key: `skip` never reaches the high half.
                _add(rng._generator.state, [0, worker, 0])


def _add(state: tf.Variable, values: list[int]) -> None:
    """Adds to a variable in each replica of this process."""

    def update(part: tf.Variable) -> tf.Tensor:
        return part.assign_add(tf.constant(values, part.dtype))

    if tf.distribute.has_strategy():
        tf.distribute.get_strategy().extended.update(state, update)
    else:
        update(state)


def make_patches(seed: Optional[int], worker: int = 0) -> tuple[Patch, ...]:
    """Returns the patches of `apply`."""
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
            reason="an Estimator that resumes draws as in its first steps, and each of its workers as the chief does",
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
        # In the replica's thread; the graph's seed is already this one.
        tf.keras.utils.set_random_seed(config.tf_random_seed)
    trains = mode == ModeKeys.TRAIN
    # Only the chief draws initial weights, so that a worker's seed does not change them.
    token = _PLACE.set((_step_of(self.latest_checkpoint()), worker) if trains else (0, 0))
    try:
        return original(self, features, labels, mode, config)
    finally:
        _PLACE.reset(token)


def _get_seed(original: Any, op_seed: Optional[int]) -> tuple[Optional[int], Optional[int]]:
    """Returns the graph's and the op's seed, the first of them for the worker and step of the current model_fn."""
    seed, own = original(op_seed)
    place = _PLACE.get()
    return (_later(seed, *place) if any(place) and seed is not None else seed), own


def _step_of(checkpoint: Optional[str]) -> int:
    """Returns the global step of an Estimator's checkpoint; 0 without one."""
    if not checkpoint:
        return 0
    reader = tf.train.load_checkpoint(checkpoint)
    return next((int(reader.get_tensor(name)) for name in _STEPS if reader.has_tensor(name)), 0)


def _later(seed: int, step: int, worker: int) -> int:
    """Returns the seed of a worker in a training that resumes from a step."""
    return int.from_bytes(hashlib.sha256(f"{seed} {step} {worker}".encode()).digest()[:4], "big") >> 1
