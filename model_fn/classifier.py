"""The Estimator model_fn of an image classifier, around any network function."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.model_fn.accumulation import Computed, Part, in_turn, part_penalties
from tfx_estimator.model_fn.assignments import all_done, assignments
from tfx_estimator.model_fn.compiling import Compiler, takes_step
from tfx_estimator.model_fn.compression import NONE
from tfx_estimator.model_fn.division import Division, find_division, is_whole
from tfx_estimator.model_fn.given_weights import GivenWeights
from tfx_estimator.model_fn.keras_model import inputs_of, require_scores, require_trainable, told_apart
from tfx_estimator.model_fn.layers import dropout_keys
from tfx_estimator.model_fn.loss import as_float, classification_loss, flat, weight_decay
from tfx_estimator.model_fn.names import CLASS_IDS, CLASSES, LOGITS, PROBABILITIES
from tfx_estimator.model_fn.optimizers import make_optimizer
from tfx_estimator.model_fn.precision import FLOAT16, FLOAT32, SKIPPED_STEPS, LossScale, require_declared, stored, use
from tfx_estimator.model_fn.schedules import learning_rate
from tfx_estimator.model_fn.update import global_loss, gradients_of, update
from tfx_estimator.pipeline.config.optimizer import Optimizer
from tfx_estimator.pipeline.config.trainer import TrainerSection

Network = Callable[[int], tf.keras.Model]


def make_model_fn(
    network: Network, divided: Optional[TrainerSection] = None, given: Optional[GivenWeights] = None
) -> Callable[..., tf.estimator.EstimatorSpec]:
    """Makes the model_fn that trains `network`.

    Args:
        network: Builds the model; see `model_fn.networks`.
        divided: The declared trainer, where it puts layers on several devices.
        given: Weights that training begins with: those that `network` loads into its model.

    Returns:
        A `model_fn(features, labels, mode, params)` for `tf.estimator.Estimator`. `features` holds `image`, float32
        [batch, height, width, channels], or what the network's inputs are named after; `labels` is int64 [batch];
        `params` holds `num_classes`, `train_steps`, `global_batch_size` (examples), `seed` and `optimizer` (the
        declared section, as a dict); `label_smoothing`, `class_weights` (by label), `gradient_accumulation` (parts of a
        batch), `gradient_compression`, `precision` of the network and `xla` (whether it compiles the step), where they
        are declared; and `label_names`, where the classes' names are to be served.
    """

    def model_fn(
        features: dict[str, tf.Tensor], labels: tf.Tensor, mode: str, params: dict[str, Any]
    ) -> tf.estimator.EstimatorSpec:
        use(params.get("precision", FLOAT32))
        serves = mode == tf.estimator.ModeKeys.PREDICT
        labels = labels if serves else flat(labels)
        division = None if serves or divided is None or is_whole() else divide(divided, features, params)
        # Keras draws the seeds of initial weights from its own generator: RunConfig's tf_random_seed does not reach it.
        tf.keras.utils.set_random_seed(params["seed"])
        with division.used() if division else contextlib.nullcontext():
            model = build(params)
        if mode == tf.estimator.ModeKeys.TRAIN:
            spec = _train(model, features, labels, params, division, divided)
            if given:
                given.begin(model)
            return spec
        logits = _logits(model, inputs_of(model, features), params, division=division)
        if serves:
            return _predict(tf.cast(logits, tf.float32), params.get("label_names", ()))
        return _evaluate(logits, labels)

    def build(params: dict[str, Any]) -> tf.keras.Model:
        """Calls the user's function."""
        model = network(params["num_classes"])
        require_declared(params.get("precision", FLOAT32), model)
        return model

    found: list[Optional[Division]] = []

    def divide(section: TrainerSection, features: dict[str, tf.Tensor], params: dict[str, Any]) -> Optional[Division]:
        """Finds out, once, by a network of its own."""
        if not found:
            shapes = {name: tf.TensorSpec([1, *each.shape[1:]], each.dtype) for name, each in features.items()}
            with tf.Graph().as_default():
                found.append(find_division(section, lambda: build(params), shapes))
        return found[0]

    return model_fn


def _logits(
    model: tf.keras.Model,
    inputs: Any,
    params: dict[str, Any],
    training: bool = False,
    division: Optional[Division] = None,
) -> tf.Tensor:
    with division.used(model) if division else contextlib.nullcontext():
        outputs = model(inputs, training=training)
    if division:
        division.check(model)
    require_scores(outputs, params["num_classes"])
    return as_float(outputs)


def _predict(logits: tf.Tensor, label_names: Sequence[str]) -> tf.estimator.EstimatorSpec:
    outputs = predictions(logits, label_names)
    return tf.estimator.EstimatorSpec(
        tf.estimator.ModeKeys.PREDICT,
        predictions=outputs,
        export_outputs={tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY: tf.estimator.export.PredictOutput(outputs)},
    )


def predictions(logits: tf.Tensor, label_names: Sequence[str]) -> dict[str, tf.Tensor]:
    """What a served model answers.

    Args:
        logits: float, [batch, num_classes].
        label_names: The classes' names, in the order of their labels; none are not served.

    Returns:
        `logits`, `probabilities`, `class_ids` (int64 [batch]) and, with names, `classes` (string [batch]).
    """
    class_ids = tf.argmax(logits, axis=-1)
    outputs = {LOGITS: logits, PROBABILITIES: tf.nn.softmax(logits), CLASS_IDS: class_ids}
    if label_names:
        outputs[CLASSES] = tf.gather(tf.constant(list(label_names)), class_ids)
    return outputs


def _train(
    model: tf.keras.Model,
    features: dict[str, tf.Tensor],
    labels: tf.Tensor,
    params: dict[str, Any],
    division: Optional[Division],
    divided: Optional[TrainerSection],
) -> tf.estimator.EstimatorSpec:
    section = Optimizer.parse_obj(params["optimizer"])
    step = tf.compat.v1.train.get_or_create_global_step()
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    rate = learning_rate(section, params["train_steps"], step, replicas)
    options = {key: params[key] for key in ("label_smoothing", "class_weights") if key in params}
    scale = LossScale() if params.get("precision") == FLOAT16 else None
    if xla := params.get("xla", False):
        # A function that is compiled makes no variables.
        model(tf.nest.map_structure(lambda each: each[:1], inputs_of(model, features)), training=False)
    # With those of the placeholder that a functional network was made of, which nobody feeds.
    # One that is not built has none, and may have losses of weights that are not there yet.
    of_earlier_calls: list[tf.Tensor] = list(model.losses) if model.built else []
    decay_of = functools.partial(weight_decay, factor=section.weight_decay, beside=division is not None)

    def compute(part: Part) -> Computed:
        inputs = inputs_of(model, part.features)
        with dropout_keys(told_apart(part.features), params["seed"]):
            logits = _logits(model, inputs, params, training=True, division=division)
        per_example = classification_loss(part.labels, logits, **options)
        # Keras lists those of each call.
        own = [each for each in model.losses if not any(each is earlier for earlier in of_earlier_calls)]
        of_earlier_calls.extend(own)
        penalties = part_penalties(part, own, decay_of(model.trainable_variables))
        loss = global_loss(per_example, params["global_batch_size"], penalties)
        hits = tf.cast(tf.equal(tf.argmax(logits, axis=-1), part.labels), loss.dtype)
        averages = model.get_updates_for(None) + model.get_updates_for(inputs)  # of batch normalisation
        objective = scale.scaled(loss) if scale else loss
        gradients = gradients_of(objective, stored(model.trainable_variables))
        return Computed(loss, tf.reduce_sum(hits), gradients, averages)

    def compute_whole(features: dict[str, tf.Tensor], labels: tf.Tensor) -> Computed:
        if division and divided and division.stages:
            # Called whole once, for its variables to have the names that they have elsewhere; nothing of it is run.
            _logits(model, inputs_of(model, features), params, division=division)
            with all_done() as begin:
                pipeline = division.pipeline(model, divided, **({"scaled": scale.scaled} if scale else {}))
                whole = pipeline.compute(features, labels)
            return with_assignments(begin, whole)
        with all_done() as begin:
            whole = in_turn(compiler.part(compute) if xla and not in_one else compute, features, labels, parts)
        return with_assignments(begin, whole)

    def with_assignments(begin: int, whole: Computed) -> Computed:
        # Of layers that keep a state of their own in `call`.
        found = assignments(begin, model.weights, known=whole.updates)
        return dataclasses.replace(whole, updates=[*whole.updates, *found])

    def train(features: dict[str, tf.Tensor], labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Operation]:
        whole = compute_whole(features, labels)
        require_trainable(model)
        gradients = scale.unscaled(whole.gradients) if scale else whole.gradients
        optimizer = make_optimizer(section, rate, step, params.get("gradient_compression", NONE), scale)
        train_op = update(gradients, stored(model.trainable_variables), optimizer, step, before=whole.updates)
        return whole.loss, whole.hits, train_op

    parts = params.get("gradient_accumulation", 1)
    in_one, compiler = xla and takes_step(parts), Compiler(model)
    if in_one:
        # A function does its updates by itself.
        loss, hits = compiler.step(lambda *batch: train(*batch)[:2])(features, labels)
        train_op = tf.group(loss, hits)
    else:
        loss, hits, train_op = train(features, labels)
    tf.compat.v1.summary.scalar("train_accuracy", hits / tf.cast(tf.size(labels), hits.dtype))
    tf.compat.v1.summary.scalar("learning_rate", rate)
    if scale:
        tf.compat.v1.summary.scalar("loss_scale", scale.value)
        tf.compat.v1.add_to_collection(SKIPPED_STEPS, tf.identity(scale.skipped))
    return tf.estimator.EstimatorSpec(tf.estimator.ModeKeys.TRAIN, loss=loss, train_op=train_op)


def _evaluate(logits: tf.Tensor, labels: tf.Tensor) -> tf.estimator.EstimatorSpec:
    # Neither smoothed nor weighted, so that it can be compared with that of other declarations.
    per_example = classification_loss(labels, tf.cast(logits, tf.float32))
    metrics = {
        "accuracy": tf.compat.v1.metrics.accuracy(labels, tf.argmax(logits, axis=-1)),
        # An Estimator's own `loss` is a mean of batch means; this is the mean over examples.
        "average_loss": tf.compat.v1.metrics.mean(per_example),
    }
    return tf.estimator.EstimatorSpec(
        tf.estimator.ModeKeys.EVAL, loss=tf.reduce_mean(per_example), eval_metric_ops=metrics
    )
