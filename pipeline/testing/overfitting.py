"""Whether a model learns a few examples by heart."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.pipeline.testing.model_fns import Batch, call_model_fn, estimator_of, make_batch

if TYPE_CHECKING:
    from typing_extensions import Unpack

_V1 = tf.compat.v1
# Names of predictions: of classes, and of scores with the threshold of a single one.
_CLASSES = ("class_ids", "class_id", "classes", "class")
_SCORES = {"probabilities": 0.5, "logits": 0.0, "scores": np.nan, "predictions": np.nan}
_SHOWN = 5


def overfits(
    target: Any,
    params: Any = None,
    *,
    steps: int = 100,
    share: float = 0.5,
    accuracy: float = 0.9,
    trainer: Optional[Mapping[str, Any]] = None,
    **batch: Unpack[Batch],
) -> list[float]:
    """Trains on one batch, again and again: a model that cannot learn that learns nothing.

    It finds a learning rate that is too high, a loss of wrong shapes, labels that are off by one, and averages that
    are not updated.

    Args:
        target: A model_fn, an Estimator, a compiled Keras model, or a network function of `trainer.model`, which gets
            the number of classes.
        params: A dict, if the function takes it; those of a network are its keyword arguments.
        share: The last step's loss is at most this share of the first one's.
        accuracy: At least this share of the examples gets its own class, if the labels are integers and there is a
            prediction class_ids, classes, class, probabilities, logits or scores.
        trainer: For a network function: options of the declaration's section `trainer`, such as its optimizer.
        batch: A `Batch`: features, labels, shape, classes, examples. A Keras model gets its arrays as they are. Integer
            labels are classes.

    Returns:
        The loss of each step.

    Raises:
        AssertionError: The loss does not fall, or classes are predicted wrongly; or as `call_model_fn`.
    """
    __tracebackhide__ = True
    made, labels = make_batch(**batch)
    if hasattr(target, "fit"):
        given = next(iter(made.values())) if batch.get("features") is None else made
        # A list would become one array.
        losses, predictions = _fit(target, tuple(given) if isinstance(given, list) else given, labels, steps)
    elif callable(target) and not {"features", "labels"} <= set(inspect.signature(target).parameters):
        declared = {"global_batch_size": len(labels), "params": dict(params or {}), **(trainer or {})}
        losses, predictions = _fit(
            _network(target, made, batch.get("classes", 10), steps, declared), made, labels, steps
        )
    else:
        estimator = estimator_of(target, params)
        call_model_fn(estimator, features=made, labels=labels)
        losses, predictions = _train(estimator, made, labels, steps)
    shown = ", ".join(f"{losses[place]:.4g}" for place in np.linspace(0, len(losses) - 1, _SHOWN).astype(int))
    ended = losses[-1] if len(losses) == steps else float("nan")
    assert ended <= share * losses[0], (
        f"the loss went from {losses[0]:.4g} to {ended:.4g} in {len(losses)} steps ({shown}), expected at most "
        f"{share:g} of the first: a learning rate too high or too low, or a loss that compares wrong shapes"
    )
    predicted = _classes_of(predictions)
    own = np.zeros(0) if isinstance(labels, (Mapping, tuple)) else np.asarray(labels).reshape(-1)
    if predicted is not None and own.dtype.kind in "iu" and own.shape == predicted.shape:
        right = predicted == own
        pairs = sorted(set(zip(own[~right].tolist(), predicted[~right].tolist())))[:_SHOWN]
        assert right.mean() >= accuracy, (
            f"the loss fell to {ended:.4g}, but {right.sum()} of {len(right)} examples are predicted in their own "
            f"class, expected {accuracy:.0%}: {', '.join(f'{new} for {old}' for old, new in pairs)}; labels off by "
            "one, or a model that predicts otherwise than it trains"
        )
    return losses


def _train(estimator: Any, features: Any, labels: Any, steps: int) -> tuple[list[float], Any]:
    def input_fn() -> tf.data.Dataset:
        given = tf.nest.map_structure(np.asarray, (features, labels), expand_composites=True)
        return tf.data.Dataset.from_tensors(given).repeat()

    class Losses(tf.compat.v1.train.SessionRunHook):
        def before_run(self, run_context: Any) -> Any:
            # An Estimator puts the loss last.
            return _V1.train.SessionRunArgs(_V1.get_collection(_V1.GraphKeys.LOSSES)[-1])

        def after_run(self, run_context: Any, run_values: Any) -> None:
            losses.append(float(run_values.results))

    losses: list[float] = []
    try:
        estimator.train(input_fn, [Losses()], steps)
    except _V1.train.NanLossDuringTrainingError:
        return losses or [float("nan")], None
    return losses, next(estimator.predict(lambda: input_fn().take(1), yield_single_examples=False))


def _network(function: Any, features: Any, classes: int, steps: int, trainer: Mapping[str, Any]) -> Any:
    from tfx_estimator.components.trainer.keras.model import ModelMaker
    from tfx_estimator.pipeline.config.trainer import TrainerSection

    name = f"{function.__module__}:{function.__name__}"
    section = TrainerSection.parse_obj({"path": "keras", "model": name, "train_steps": steps, **trainer})
    spec = {name: tf.io.FixedLenFeature(each.shape[1:], each.dtype) for name, each in features.items()}
    return ModelMaker(section, classes, spec, function=function).make_compiled(1)


def _fit(model: Any, features: Any, labels: Any, steps: int) -> tuple[list[float], Any]:
    batches = tf.data.Dataset.from_tensors((features, labels)).repeat()
    losses = model.fit(batches, epochs=steps, steps_per_epoch=1, verbose=0).history["loss"]
    return losses, tf.nest.map_structure(np.asarray, model(features, training=False))


def _classes_of(predictions: Any) -> np.ndarray | None:
    """Returns the predicted class of each example, int64 [batch]; None if the predictions do not tell."""
    if isinstance(predictions, (list, tuple)):
        return None
    named = predictions if isinstance(predictions, dict) else {"predictions": predictions}
    found = {name: np.asarray(named[name]) for name in (*_CLASSES, *_SCORES) if name in named}
    for name, value in found.items():
        if name in _CLASSES and value.dtype.kind in "iu":
            return value.reshape(-1)
        if name in _SCORES and value.ndim == 2 and value.shape[1] > 1:
            return value.argmax(axis=1)
        if value.ndim == 2 and not np.isnan(_SCORES.get(name, np.nan)):
            return (value[:, 0] > _SCORES[name]).astype(int)
    return None
