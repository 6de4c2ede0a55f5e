"""Has chance, and the names that Keras gives, be the same in each call of a user's code, whatever ran before it.

A RunConfig's `tf_random_seed` reaches what TensorFlow draws in an Estimator's graph. Keras draws its seeds from a
generator of its own, one for each thread, and the model_fn of each replica is called in another thread.
"""

from __future__ import annotations

import functools
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.components.trainer.patch import Patch
from tfx_estimator.pipeline.config.trainer import TrainerSection


def apply(section: Optional[TrainerSection]) -> None:
    """Has every Estimator of this process draw by the declared seed. Must run before any TensorFlow op.

    A seed of the user's own, in a RunConfig, comes first; without a declaration it is the only one.

    Args:
        section: The declared trainer; None in a pipeline of somebody else's.
    """
    for patch in make_patches(section.seed if section else None):
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


def make_patches(seed: Optional[int]) -> tuple[Patch, ...]:
    """What `apply` changes in TensorFlow.

    Args:
        seed: Of Estimators whose RunConfig has none; None is none.
    """
    return (
        Patch(
            "tensorflow_estimator.python.estimator.estimator:maybe_overwrite_model_dir_and_session_config",
            functools.partial(_with_seed, seed),
            reason="with a RunConfig that has no seed each run draws other weights, whatever trainer.seed is",
            version="2.15.1",
            until="there is no tf.estimator",
        ),
        Patch(
            "tensorflow_estimator.python.estimator.estimator:Estimator._call_model_fn",
            _draw_by_seed,
            reason="the seed of a RunConfig does not reach the initial weights and the masks of Keras layers",
            version="2.15.1",
            until="there is no tf.estimator",
        ),
    )


def _with_seed(seed: Optional[int], original: Any, *args: Any, **kwargs: Any) -> tf.estimator.RunConfig:
    config = original(*args, **kwargs)
    return config if seed is None or config.tf_random_seed is not None else config.replace(tf_random_seed=seed)


def _draw_by_seed(
    original: Any, self: tf.estimator.Estimator, features: Any, labels: Any, mode: str, config: tf.estimator.RunConfig
) -> tf.estimator.EstimatorSpec:
    if config.tf_random_seed is not None:
        # In the thread of the replica; the seed of the graph is this one already.
        tf.keras.utils.set_random_seed(config.tf_random_seed)
    return original(self, features, labels, mode, config)
