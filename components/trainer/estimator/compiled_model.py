"""A compiled tf.keras.Model of the user's as an Estimator: model_to_estimator, with a network's inputs and outputs."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

import tensorflow as tf

from tfx_estimator.components.trainer import seeds
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.components.trainer.task.user_code import call_network
from tfx_estimator.model_fn.compiled_checks import check_compiled
from tfx_estimator.model_fn.keras_model import (
    build,
    class_scores,
    gives_probabilities,
    input_names,
    inputs_of,
    is_compiled,
    is_subclassed,
    served,
)
from tfx_estimator.model_fn.precision import FLOAT32
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.errors import UserCodeError
from tfx_estimator.pipeline.log import get_logger

# The entry of a trainer_fn's specs that holds what the user should know.
NOTICES_KEY = "notices"
_ACCURACY, _LOSS = "accuracy", "average_loss"
_PROJECT = __name__.partition(".")[0]
# What a class of the user's may train and evaluate by, and what model_to_estimator knows nothing of.
_OVERRIDDEN = ("train_step", "test_step", "compute_loss", "compute_metrics")
# What Keras's own conversion of an optimizer drops without a word.
_DROPPED = ("weight_decay",)

logger = get_logger("trainer")


@dataclass(frozen=True)
class FirstCall:
    """What a function of the user's came to when it was called outside of the Estimator's graph.

    Args:
        model: The compiled model, built; None if it is a network, which the Estimator's own graph is to hold.
        failure: What it raised.
    """

    model: Optional[tf.keras.Model] = None
    failure: Optional[Exception] = None

    def call_again(self, function: Callable, num_classes: int, params: Mapping[str, Any]) -> Any:
        """Calls it in the Estimator's graph; an error that it raises there tells of the first one too.

        Args:
            function: Of the user's.
            num_classes: As of `call_network`, and likewise the next.
            params: `trainer.params`.

        Returns:
            What it returned.
        """
        try:
            return call_network(function, num_classes, params)
        except Exception as error:
            first = self.failure
            if first is not None and error.__context__ is None and _told(error) != _told(first):
                error.__context__ = first
            raise


def _told(error: Exception) -> tuple[type, str]:
    return type(error), str(error)


def find_compiled(function: Callable, settings: Settings, spec: Mapping[str, Any]) -> FirstCall:
    """Calls the function that `trainer.model` names, and finds out whether its model is compiled.

    Args:
        function: Returns a tf.keras.Model.
        settings: Of the Trainer.
        spec: Of the transformed features.

    Returns:
        What the call came to.

    Raises:
        UserCodeError: An input of a compiled model is named as no feature is.
    """
    # The networks that are built in are networks.
    if function.__module__.startswith(f"{_PROJECT}."):
        return FirstCall()
    seeds.begin(settings.trainer)
    try:
        model = call_network(function, len(settings.label_names), settings.trainer.params if settings.trainer else {})
    except Exception as error:
        # A network may need the graph in which it will be called next; what is wrong with it is told there.
        logger.debug(f"{function.__module__}.{function.__name__} fails outside of a graph", exc_info=True)
        return FirstCall(failure=error)
    if not isinstance(model, tf.keras.Model) or not is_compiled(model):
        return FirstCall()
    if not is_subclassed(model):
        build(model, spec)
    return FirstCall(model)


def make_estimator(model: tf.keras.Model, settings: Settings, config: tf.estimator.RunConfig) -> tf.estimator.Estimator:
    """Makes the Estimator of a compiled model, which starts from the model's weights.

    Args:
        model: Built.
        settings: Of the Trainer.
        config: Of the Estimator.

    Raises:
        UserCodeError: An Estimator cannot have such a model, optimizer or strategy.
    """
    target = settings.trainer.model if settings.trainer else None
    precision = settings.trainer.precision if settings.trainer else FLOAT32
    _check(model, settings.distribution, target or "", precision)
    # Each task its own: TensorFlow keeps the model's weights there, to start from.
    folder = tempfile.mkdtemp(prefix="tfx-estimator-keras-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    inner = tf.keras.estimator.model_to_estimator(
        model, config=config.replace(model_dir=folder), checkpoint_format="saver"
    )
    head = _Head(model, len(settings.label_names), settings.label_names, gives_probabilities(model))

    def model_fn(
        features: dict[str, tf.Tensor], labels: tf.Tensor, mode: str, config: tf.estimator.RunConfig
    ) -> tf.estimator.EstimatorSpec:
        spec = inner.model_fn(_inputs(model, features), head.targets(labels), mode, config)
        return head.complete(spec, labels)

    return tf.estimator.Estimator(model_fn, config=config, warm_start_from=inner._warm_start_settings)


def _inputs(model: tf.keras.Model, features: Mapping[str, tf.Tensor]) -> Union[tf.Tensor, dict[str, tf.Tensor]]:
    """What TensorFlow gives the copy of a model: by the names of its inputs, where Keras goes by the keys of a dict."""
    inputs, names = inputs_of(model, features), input_names(model)
    if names is None or not isinstance(inputs, Mapping):
        return inputs
    return dict(zip(model.input_names, (inputs[name] for name in names)))


@dataclass(frozen=True)
class _Head:
    """What the built-in model_fn gives beside what model_to_estimator does.

    Args:
        model: The user's.
        num_classes: Of the data.
        label_names: Of the classes.
        probabilities: Whether its outputs are probabilities, or logits.
    """

    model: tf.keras.Model
    num_classes: int
    label_names: Sequence[str]
    probabilities: bool

    def targets(self, labels: Optional[tf.Tensor]) -> Optional[tf.Tensor]:
        """The labels in the rank of the outputs."""
        shape = tf.nest.flatten(self.model.output_shape)
        single = isinstance(self.model.output_shape, tuple) and len(shape) == 2 and shape[-1] == 1
        return tf.reshape(labels, [-1, 1]) if labels is not None and single else labels

    def complete(self, spec: tf.estimator.EstimatorSpec, labels: Optional[tf.Tensor]) -> tf.estimator.EstimatorSpec:
        """Adds the metrics of an evaluation, and the outputs of a served model."""
        outputs = spec.predictions
        assert isinstance(outputs, dict)
        (first, *rest) = outputs.values()
        if spec.mode == tf.estimator.ModeKeys.EVAL:
            # Keras divides the loss by the replicas, to add it up; an Estimator averages it.
            loss = spec.loss * tf.distribute.get_strategy().num_replicas_in_sync
            size = tf.cast(tf.shape(labels)[0], loss.dtype)
            metrics = dict(spec.eval_metric_ops or {})
            metrics.setdefault(_LOSS, tf.compat.v1.metrics.mean(loss, weights=size))
            scores = None if rest else class_scores(first, self.num_classes)
            if scores is not None:
                metrics.setdefault(_ACCURACY, tf.compat.v1.metrics.accuracy(labels, tf.argmax(scores, axis=-1)))
            return spec._replace(loss=loss, eval_metric_ops=metrics)
        if spec.mode == tf.estimator.ModeKeys.PREDICT:
            answers = served(outputs if rest else first, self.probabilities, self.num_classes, self.label_names)
            export = {
                tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY: tf.estimator.export.PredictOutput(answers),
            }
            return spec._replace(predictions=answers, export_outputs=export)
        return spec


def _check(model: tf.keras.Model, distribution: Distribution, target: str, precision: str) -> None:
    check_compiled(model, target, distribution, precision)
    keras = "set trainer.path: keras, which trains it as it is"
    if is_subclassed(model):
        raise UserCodeError(
            f"trainer.model: {target!r} returns a compiled model of a class of its own, {type(model).__name__}, which "
            "TensorFlow cannot copy into an Estimator's graph with its weights",
            expected="a functional model or a Sequential; or, not compiled, any network",
            todo=keras,
        )
    own = [name for name in _OVERRIDDEN if getattr(type(model), name) is not getattr(tf.keras.Model, name)]
    if own:
        raise UserCodeError(
            f"trainer.model: {target!r} returns a compiled model with a {' and a '.join(own)} of its own, which an "
            "Estimator would never call",
            expected="a model that trains as Keras's own do",
            todo=keras,
        )
    if distribution.train.asynchronous or distribution.train.takes("tpu"):
        raise UserCodeError(
            f"trainer.model: {target!r} returns a compiled model, and a Keras optimizer in an Estimator cannot train "
            f"under {distribution.train.strategy}",
            expected="one_device, mirrored, central_storage or multi_worker_mirrored",
            todo=f"choose one of them; or {keras}",
        )
    optimizer = model.optimizer
    dropped = [name for name in _DROPPED if getattr(optimizer, name, None)]
    named = type(optimizer).__name__
    legacy = isinstance(optimizer, tf.keras.optimizers.legacy.Optimizer)
    known = hasattr(tf.keras.optimizers.legacy, named)
    if not legacy and (dropped or not known):
        what = f"{named}'s {' and '.join(dropped)}" if known else f"the optimizer {named}"
        raise UserCodeError(
            f"trainer.model: {target!r} returns a compiled model, and an Estimator cannot have {what}",
            expected="an optimizer that tf.keras.optimizers.legacy has, without them",
            todo=f"compile the model with another one; or {keras}",
        )
    if isinstance(optimizer, tf.keras.optimizers.RMSprop) and not optimizer.momentum:
        raise UserCodeError(
            f"trainer.model: {target!r} returns a compiled model, and in an Estimator tf.keras.optimizers.RMSprop "
            "without momentum becomes that of tf.keras.optimizers.legacy, which adds epsilon outside of the root: it "
            "would train another model",
            expected="tf.keras.optimizers.legacy.RMSprop, which is the same on every path; or one with momentum",
            todo=f"compile the model with it; or {keras}",
        )
    if isinstance(optimizer, tf.keras.optimizers.Nadam):
        raise UserCodeError(
            f"trainer.model: {target!r} returns a compiled model, and in an Estimator tf.keras.optimizers.Nadam "
            "becomes that of tf.keras.optimizers.legacy, which counts steps where the other one counts how often it "
            "was traced: it would train another model",
            expected="tf.keras.optimizers.legacy.Nadam, which is the same on every path",
            todo=f"compile the model with it; or {keras}",
        )
