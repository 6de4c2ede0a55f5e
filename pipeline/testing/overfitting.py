"""Whether a model learns a few examples by heart."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.pipeline.testing.arrays import classes_of, given_or_made_up
from tfx_estimator.pipeline.testing.model_fns import call_model_fn, estimator_of

_V1 = tf.compat.v1
_SHOWN = 5


def overfits(
    target: Any,
    params: Optional[Mapping[str, Any]] = None,
    *,
    shape: Sequence[int] = (28, 28, 1),
    classes: int = 10,
    examples: int = 32,
    steps: int = 100,
    share: float = 0.5,
    accuracy: float = 0.9,
    features: Any = None,
    labels: Any = None,
    trainer: Optional[Mapping[str, Any]] = None,
) -> list[float]:
    """Trains on one batch, again and again: a model that cannot learn that learns nothing.

    It finds a learning rate that is too high, a loss of wrong shapes, labels that are off by one, and averages that
    are not updated.

    Args:
        target: A model_fn, an Estimator, a compiled Keras model, or a network function of `trainer.model`, which gets
            the number of classes.
        params: The function's own.
        steps: Number of training steps.
        share: The last step's loss is at most this share of the first one's.
        accuracy: At least this share of the examples gets its own class, if the labels are integers and there is a
            prediction class_ids, classes, class, probabilities, logits or scores.
        shape, classes, examples, features, labels: A batch, as of `call_model_fn`; a Keras model gets its arrays as
            they are. Integer labels are classes.
        trainer: For a network function: options of the declaration's section `trainer`, such as its optimizer.

    Returns:
        The loss of each step.

    Raises:
        AssertionError: The loss does not fall, or classes are predicted wrongly; or as `call_model_fn`.
    """
    __tracebackhide__ = True
    is_keras = hasattr(target, "fit")
    is_made_up = features is None
    features, labels = given_or_made_up(features, labels, shape, classes, examples)
    if is_keras:
        given = next(iter(features.values())) if is_made_up else features
        # A list would become one array.
        losses, predictions = _fit(target, tuple(given) if isinstance(given, list) else given, labels, steps)
    elif _is_network(target):
        losses, predictions = _train_network(target, params or {}, trainer or {}, features, labels, classes, steps)
    else:
        estimator = estimator_of(target, params)
        call_model_fn(estimator, features=features, labels=labels)
        losses, predictions = _train_estimator(estimator, features, labels, steps)
    shown = ", ".join(f"{losses[place]:.4g}" for place in np.linspace(0, len(losses) - 1, _SHOWN).astype(int))
    ended = losses[-1] if len(losses) == steps else float("nan")
    assert ended <= share * losses[0], (
        f"the loss went from {losses[0]:.4g} to {ended:.4g} in {len(losses)} steps ({shown}), expected at most "
        f"{share:g} of the first: a learning rate too high or too low, or a loss that compares wrong shapes"
    )
    predicted = classes_of(predictions)
    own = np.zeros(0) if isinstance(labels, (Mapping, tuple)) else np.asarray(labels).reshape(-1)
    if predicted is not None and np.issubdtype(own.dtype, np.integer) and own.shape == predicted.shape:
        right = predicted == own
        pairs = sorted(set(zip(own[~right].tolist(), predicted[~right].tolist())))[:_SHOWN]
        assert right.mean() >= accuracy, (
            f"the loss fell to {ended:.4g}, but {right.sum()} of {len(right)} examples are predicted in their own "
            f"class, expected {accuracy:.0%}: {', '.join(f'{new} for {old}' for old, new in pairs)}; labels off by "
            "one, or a model that predicts otherwise than it trains"
        )
    return losses


def _is_network(target: Any) -> bool:
    return callable(target) and not {"features", "labels"} <= set(inspect.signature(target).parameters)


class _Losses(tf.compat.v1.train.SessionRunHook):
    """Keeps the loss of each step."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def before_run(self, run_context: Any) -> Any:
        """Asks for the loss, which an Estimator puts last in this collection."""
        return _V1.train.SessionRunArgs(_V1.get_collection(_V1.GraphKeys.LOSSES)[-1])

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Keeps it."""
        self.values.append(float(run_values.results))


def _train_estimator(estimator: Any, features: Any, labels: Any, steps: int) -> tuple[list[float], Any]:
    def input_fn() -> tf.data.Dataset:
        given = tf.nest.map_structure(np.asarray, (features, labels), expand_composites=True)
        return tf.data.Dataset.from_tensors(given).repeat()

    losses = _Losses()
    try:
        estimator.train(input_fn, hooks=[losses], steps=steps)
    except _V1.train.NanLossDuringTrainingError:
        return losses.values or [float("nan")], None
    once = estimator.predict(lambda: input_fn().take(1), yield_single_examples=False)
    return losses.values, next(once)


def _train_network(
    function: Callable[..., Any],
    params: Mapping[str, Any],
    trainer: Mapping[str, Any],
    features: dict[str, np.ndarray],
    labels: np.ndarray,
    classes: int,
    steps: int,
) -> tuple[list[float], Any]:
    from tfx_estimator.components.trainer.keras.model import ModelMaker
    from tfx_estimator.pipeline.config.trainer import TrainerSection

    name = f"{function.__module__}:{function.__name__}"
    given = {"path": "keras", "model": name, "train_steps": steps, "global_batch_size": len(labels), **trainer}
    section = TrainerSection.parse_obj({**given, "params": dict(params)})
    spec = {name: tf.io.FixedLenFeature(each.shape[1:], each.dtype) for name, each in features.items()}
    maker = ModelMaker(section, classes, spec, function=function)
    return _fit(maker.make_compiled(1), features, labels, steps)


def _fit(model: Any, features: Any, labels: Any, steps: int) -> tuple[list[float], Any]:
    batches = tf.data.Dataset.from_tensors((features, labels)).repeat()
    losses = model.fit(batches, epochs=steps, steps_per_epoch=1, verbose=0).history["loss"]
    return losses, tf.nest.map_structure(np.asarray, model(features, training=False))
