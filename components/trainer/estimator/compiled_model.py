"""A compiled tf.keras.Model of the user's as an Estimator: model_to_estimator, with a network's inputs and outputs."""

from __future__ import annotations

import atexit
import contextlib
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

import tensorflow as tf

from tfx_estimator.components.trainer import seeds
from tfx_estimator.components.trainer.estimator.compiled_refusals import own_schedule, refusal, refuse_model
from tfx_estimator.components.trainer.estimator.loading import loaded_before
from tfx_estimator.components.trainer.estimator.warm_start import ModelWeights
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.components.trainer.task.user_code import call_network
from tfx_estimator.model_fn.given_weights import GivenWeights, keep, watching
from tfx_estimator.model_fn.keras_model import (
    build,
    class_scores,
    input_names,
    inputs_of,
    is_compiled,
    is_subclassed,
    output_names,
    reductions,
    require_trainable,
    served,
)
from tfx_estimator.model_fn.own_methods import refuse_own_methods
from tfx_estimator.model_fn.precision import FLOAT32
from tfx_estimator.model_fn.probabilities import gives_probabilities, refuse_probabilities
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.errors import UserCodeError
from tfx_estimator.pipeline.log import get_logger

# The entry of a trainer_fn's specs that holds what the user should know.
NOTICES_KEY = "notices"
_ACCURACY, _LOSS = "accuracy", "average_loss"
_PROJECT = __name__.partition(".")[0]

logger = get_logger("trainer")


@dataclass(frozen=True)
class FirstCall:
    """What a function of the user's came to when it was called outside of the Estimator's graph.

    Args:
        model: The compiled model, built; None if it is a network, which the Estimator's own graph is to hold.
        failure: What it raised.
        given: The weights that it gave a network.
    """

    model: Optional[tf.keras.Model] = None
    failure: Optional[Exception] = None
    given: Optional[GivenWeights] = None

    def call_again(self, function: Callable, num_classes: int, params: Mapping[str, Any]) -> Any:
        """Calls it in the Estimator's graph; an error that it raises there tells of the first one too.

        Args:
            function: Of the user's.
            num_classes: As of `call_network`, and likewise the next.
            params: `trainer.params`.

        Returns:
            What it returned.
        """
        first = self.failure
        try:
            with loaded_before() if self.given else contextlib.nullcontext():
                model = call_network(function, num_classes, params)
        except Exception as error:
            if first is not None and error.__context__ is None and _told(error) != _told(first):
                error.__context__ = first
            raise
        if first is not None and isinstance(model, tf.keras.Model) and _was_loaded(model):
            raise UserCodeError(
                "trainer.model: the function gives its network weights, and works in an Estimator's graph alone, where "
                f"they are lost; outside of it: {type(first).__name__}: {first}",
                expected="a function that can be called outside of a graph too",
                todo="correct what fails there; or declare trainer.warm_start, in place of loading weights",
            ) from first
        refuse_own_methods(model)
        return model


def _was_loaded(model: tf.keras.Model) -> bool:
    """Has Keras written weights into its session."""
    weights = [
        each for layer in model._flatten_layers() for each in (*layer._trainable_weights, *layer._non_trainable_weights)
    ]
    return any(hasattr(each, "_assign_placeholder") for each in weights)


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
        UserCodeError: An input of a compiled model is named as no feature is; or a network has probabilities for
            outputs, or nothing to train.
    """
    # The networks that are built in are networks.
    if function.__module__.startswith(f"{_PROJECT}."):
        return FirstCall()
    seeds.begin(settings.trainer)
    # Nothing is computed here that is worth a GPU's memory, which the session is given with options of its own.
    with tf.device("/cpu:0"):
        return _call_first(function, settings, spec)


def _call_first(function: Callable, settings: Settings, spec: Mapping[str, Any]) -> FirstCall:
    try:
        with watching() as made:
            params = settings.trainer.params if settings.trainer else {}
            model = _computed(lambda: call_network(function, len(settings.label_names), params))
    except Exception as error:
        # A network may need the graph in which it will be called next; what is wrong with it is told there.
        logger.debug(f"{function.__module__}.{function.__name__} fails outside of a graph", exc_info=True)
        return FirstCall(failure=error)
    if not isinstance(model, tf.keras.Model):
        return FirstCall()
    if not is_compiled(model):
        return FirstCall(given=_look_at(model, made.changed(), spec))
    if not is_subclassed(model):
        _computed(lambda: build(model, spec))
    return FirstCall(model)


def _computed(compute: Callable[[], Any]) -> Any:
    """What a CPU cannot compute, such as convolutions with channels first, is computed where TensorFlow puts it."""
    try:
        return compute()
    except Exception:
        if not tf.config.list_logical_devices("GPU"):
            raise
    with tf.device(None):
        return compute()


def _look_at(network: tf.keras.Model, changed: set[int], spec: Mapping[str, Any]) -> Optional[GivenWeights]:
    """Checks a network as the Keras paths do, and keeps what weights it was given."""
    refuse_own_methods(network)
    try:
        outputs = _computed(lambda: build(network, spec))
    except Exception:
        # As for the function itself; but weights could not be told apart in the graph.
        if changed:
            raise
        logger.debug(f"{network.name} cannot be called outside of a graph", exc_info=True)
        return None
    refuse_probabilities(network, outputs)
    require_trainable(network)
    return keep(network, changed)


def make_estimator(model: tf.keras.Model, settings: Settings, config: tf.estimator.RunConfig) -> tf.estimator.Estimator:
    """Makes the Estimator of a compiled model, which starts from the model's weights.

    Args:
        model: Built.
        settings: Of the Trainer.
        config: Of the Estimator.

    Raises:
        UserCodeError: An Estimator cannot have such a model, optimizer or strategy.
    """
    target = (settings.trainer.model if settings.trainer else None) or ""
    precision = settings.trainer.precision if settings.trainer else FLOAT32
    refuse_model(model, settings.distribution, target, precision, len(settings.label_names))
    # Each task its own: TensorFlow keeps the model's weights there, to start from.
    folder = tempfile.mkdtemp(prefix="tfx-estimator-keras-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    metrics = model.compiled_metrics
    if not metrics._user_metrics:
        # Weighted ones alone TensorFlow would leave out; without weights of examples they are metrics as others are.
        metrics._user_metrics, metrics._user_weighted_metrics = metrics._user_weighted_metrics, None
    own_objects = own_schedule(model.optimizer)
    with tf.keras.utils.custom_object_scope(own_objects):
        try:
            inner = tf.keras.estimator.model_to_estimator(
                model, config=config.replace(model_dir=folder), checkpoint_format="saver"
            )
        except ValueError as error:
            if "`None` for gradient" not in str(error):
                raise
            raise refusal(
                target,
                f", and an Estimator cannot train one with variables that its loss does not depend on: {error}",
                expected="a loss for each output, and no variable beside, unless it is not trainable",
                todo="give each output a loss",
            ) from error
    weights = inner._warm_start_settings.ckpt_to_initialize_from
    head = _Head(model, len(settings.label_names), settings.label_names, gives_probabilities(model))

    def model_fn(
        features: dict[str, tf.Tensor], labels: tf.Tensor, mode: str, config: tf.estimator.RunConfig
    ) -> tf.estimator.EstimatorSpec:
        # Here: each replica is a thread of its own.
        with tf.keras.utils.custom_object_scope(own_objects):
            spec = inner.model_fn(_inputs(model, features), head.targets(labels), mode, config)
        return head.complete(spec, labels)

    return tf.estimator.Estimator(model_fn, config=config, warm_start_from=ModelWeights(weights))


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

    def targets(self, labels: Optional[tf.Tensor]) -> Union[tf.Tensor, list[tf.Tensor], None]:
        """The labels in the rank of the outputs; of several, for each: as in Keras, all are compared with the same."""
        if labels is None:
            return None
        shapes = [each.shape for each in self.model.outputs]
        columns = [len(shape) == 2 and shape[-1] == 1 for shape in shapes]
        each_output = [tf.reshape(labels, [-1, 1]) if column else labels for column in columns]
        return each_output if each_output[1:] else each_output[0]

    def complete(self, spec: tf.estimator.EstimatorSpec, labels: Optional[tf.Tensor]) -> tf.estimator.EstimatorSpec:
        """Adds the metrics of an evaluation, and the outputs of a served model."""
        assert isinstance(spec.predictions, dict)
        outputs = list(spec.predictions.values())
        if spec.mode == ModeKeys.EVAL:
            size = tf.cast(tf.shape(labels)[0], spec.loss.dtype)
            # Keras divides a mean by the replicas, to add it up; an Estimator averages it. A sum becomes a mean.
            replicas = tf.distribute.get_strategy().num_replicas_in_sync
            loss = spec.loss / size if reductions(self.model) == {"sum"} else spec.loss * replicas
            metrics = dict(spec.eval_metric_ops or {})
            metrics.setdefault(_LOSS, tf.compat.v1.metrics.mean(loss, weights=size))
            scores = class_scores(outputs[0], self.num_classes) if len(self.model.outputs) == 1 else None
            if scores is not None:
                metrics.setdefault(_ACCURACY, tf.compat.v1.metrics.accuracy(labels, tf.argmax(scores, axis=-1)))
            return spec._replace(loss=loss, eval_metric_ops=metrics)
        if spec.mode == ModeKeys.PREDICT:
            answers = served(self._named(outputs), self.probabilities, self.num_classes, self.label_names)
            export = {
                tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY: tf.estimator.export.PredictOutput(answers),
            }
            return spec._replace(predictions=answers, export_outputs=export)
        return spec

    def _named(self, outputs: list[tf.Tensor]) -> Union[tf.Tensor, dict[str, tf.Tensor]]:
        """The outputs as the model itself returns them: one, or several by the names that they have in Keras."""
        if len(outputs) == 1 and not isinstance(self.model.output, Mapping):
            return outputs[0]
        return dict(zip(output_names(self.model, len(outputs)), outputs))
