"""The Estimator model_fn of an image classifier, around any network function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfx_estimator.model_fn.keras_model import inputs_of, require_scores, told_apart
from tfx_estimator.model_fn.layers import dropout_keys
from tfx_estimator.model_fn.loss import as_float, classification_loss
from tfx_estimator.model_fn.names import CLASS_IDS, CLASSES, LOGITS, PROBABILITIES
from tfx_estimator.model_fn.optimizers import make_optimizer
from tfx_estimator.model_fn.schedules import learning_rate
from tfx_estimator.model_fn.update import global_loss, update
from tfx_estimator.pipeline.config.optimizer import Optimizer

Network = Callable[[int], tf.keras.Model]


def make_model_fn(network: Network) -> Callable[..., tf.estimator.EstimatorSpec]:
    """Makes the model_fn that trains `network`.

    Args:
        network: Builds the model; see `model_fn.networks`.

    Returns:
        A `model_fn(features, labels, mode, params)` for `tf.estimator.Estimator`. `features` holds `image`, float32
        [batch, height, width, channels], or what the network's inputs are named after; `labels` is int64 [batch];
        `params` holds `num_classes`, `train_steps`, `global_batch_size` (examples), `seed` and `optimizer` (the
        declared section, as a dict); `label_smoothing` and `class_weights` (by label), where they are declared; and
        `label_names`, where the classes' names are to be served.
    """

    def model_fn(
        features: dict[str, tf.Tensor], labels: tf.Tensor, mode: str, params: dict[str, Any]
    ) -> tf.estimator.EstimatorSpec:
        training = mode == tf.estimator.ModeKeys.TRAIN
        # Keras draws the seeds of initial weights from its own generator: RunConfig's tf_random_seed does not reach it.
        tf.keras.utils.set_random_seed(params["seed"])
        model = network(params["num_classes"])
        inputs = inputs_of(model, features)
        with dropout_keys(told_apart(features), params["seed"]):
            outputs = model(inputs, training=training)
        require_scores(outputs, params["num_classes"])
        logits = as_float(outputs)
        if mode == tf.estimator.ModeKeys.PREDICT:
            return _predict(tf.cast(logits, tf.float32), params.get("label_names", ()))
        if training:
            return _train(model, inputs, logits, labels, params)
        return _evaluate(logits, labels)

    return model_fn


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
    inputs: Any,
    logits: tf.Tensor,
    labels: tf.Tensor,
    params: dict[str, Any],
) -> tf.estimator.EstimatorSpec:
    section = Optimizer.parse_obj(params["optimizer"])
    step = tf.compat.v1.train.get_or_create_global_step()
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    rate = learning_rate(section, params["train_steps"], step, replicas)
    options = {key: params[key] for key in ("label_smoothing", "class_weights") if key in params}
    per_example = classification_loss(labels, logits, **options)
    penalties = [*model.losses, *weight_decay(model, section.weight_decay)]
    loss = global_loss(per_example, params["global_batch_size"], penalties)
    averages = model.get_updates_for(None) + model.get_updates_for(inputs)  # of batch normalisation
    train_op = update(loss, model.trainable_variables, make_optimizer(section, rate, step), step, before=averages)
    hits = tf.cast(tf.equal(tf.argmax(logits, axis=-1), labels), tf.float32)
    tf.compat.v1.summary.scalar("train_accuracy", tf.reduce_mean(hits))
    tf.compat.v1.summary.scalar("learning_rate", rate)
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


def weight_decay(model: tf.keras.Model, factor: float) -> list[tf.Tensor]:
    """The L2 penalties of a network's kernels.

    Args:
        model: The network.
        factor: As declared.

    Returns:
        Scalars; none if the factor is 0.
    """
    kernels = [variable for variable in model.trainable_variables if "kernel" in variable.name]
    return [factor * tf.nn.l2_loss(kernel) for kernel in kernels] if factor else []
