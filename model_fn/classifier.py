"""The Estimator model_fn of an image classifier, around any network function."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Optional, Union

import tensorflow as tf

from tfx_estimator.model_fn.accumulation import Computed, Part, in_turn
from tfx_estimator.model_fn.assignments import all_done, assignments
from tfx_estimator.model_fn.compiling import Compiler, takes_step
from tfx_estimator.model_fn.compression import NONE
from tfx_estimator.model_fn.division import Division, find_division, is_whole
from tfx_estimator.model_fn.given_weights import GivenWeights
from tfx_estimator.model_fn.keras_model import inputs_of, require_scores, require_trainable, told_apart
from tfx_estimator.model_fn.layers import dropout_keys
from tfx_estimator.model_fn.loss import as_float, classification_loss, flat
from tfx_estimator.model_fn.names import CLASS_IDS, CLASSES, LOGITS, PROBABILITIES
from tfx_estimator.model_fn.objective import Objective, count_hits
from tfx_estimator.model_fn.optimizers import make_optimizer
from tfx_estimator.model_fn.parallel_parts import in_parallel, refuse_state
from tfx_estimator.model_fn.precision import FLOAT16, FLOAT32, SKIPPED_STEPS, LossScale, require_declared, stored, use
from tfx_estimator.model_fn.schedules import learning_rate
from tfx_estimator.model_fn.update import gradients_of, update
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.config.optimizer import Optimizer
from tfx_estimator.pipeline.config.trainer import TrainerSection

Network = Callable[[int], tf.keras.Model]

# What of a step XLA compiles.
_WHOLE, _PARTS, _NOTHING = "whole", "parts", "nothing"


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
        batch), `parallel_parts` (of each of these, at the same time), `gradient_compression`, `precision` of the
        network and `xla` (whether it compiles the step), where they are declared; and `label_names`, where the classes'
        names are to be served.
    """

    def model_fn(
        features: dict[str, tf.Tensor], labels: tf.Tensor, mode: str, params: dict[str, Any]
    ) -> tf.estimator.EstimatorSpec:
        trains = mode == ModeKeys.TRAIN
        use(params.get("precision", FLOAT32), trains)
        serves = mode == ModeKeys.PREDICT
        labels = labels if serves else flat(labels)
        division = None if serves or divided is None or is_whole() else divide(divided, features, params, trains)
        # Keras draws the seeds of initial weights from its own generator: RunConfig's tf_random_seed does not reach it.
        tf.keras.utils.set_random_seed(params["seed"])
        with division.used() if division else contextlib.nullcontext():
            model = build(params, trains)
        if trains:
            spec = _train(model, features, labels, params, division, divided)
            if given:
                given.begin(model)
            return spec
        logits = _logits(model, inputs_of(model, features), params, division=division)
        if serves:
            return _predict(tf.cast(logits, tf.float32), params.get("label_names", ()))
        return _evaluate(logits, labels)

    def build(params: dict[str, Any], trains: bool) -> tf.keras.Model:
        """Calls the user's function."""
        model = network(params["num_classes"])
        require_declared(params.get("precision", FLOAT32), model, trains)
        return model

    found: list[Optional[Division]] = []

    def divide(
        section: TrainerSection, features: dict[str, tf.Tensor], params: dict[str, Any], trains: bool
    ) -> Optional[Division]:
        """Finds out, once, by a network of its own."""
        if not found:
            shapes = {name: tf.TensorSpec([1, *each.shape[1:]], each.dtype) for name, each in features.items()}
            with tf.Graph().as_default():
                found.append(find_division(section, lambda: build(params, trains), shapes))
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
        ModeKeys.PREDICT,
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
    global_step = tf.compat.v1.train.get_or_create_global_step()
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    rate = learning_rate(section, params["train_steps"], global_step, replicas)
    scale = LossScale() if params.get("precision") == FLOAT16 else None
    xla, parts = params.get("xla", False), params.get("gradient_accumulation", 1)
    if xla:
        # A function that is compiled makes no variables.
        model(tf.nest.map_structure(lambda each: each[:1], inputs_of(model, features)), training=False)
    step = _Step(
        model=model,
        params=params,
        division=division,
        divided=divided,
        objective=Objective(
            loss_options={key: params[key] for key in ("label_smoothing", "class_weights") if key in params},
            weight_decay=section.weight_decay,
            global_batch_size=params["global_batch_size"],
            beside=division is not None,
            scale=scale,
        ),
        section=section,
        rate=rate,
        global_step=global_step,
        parts=parts,
        parallel=params.get("parallel_parts", 1),
        compiled=_compiled_of_step(xla, parts),
        compiler=Compiler(model),
        # With those of the placeholder that a functional network was made of, which nobody feeds.
        # One that is not built has none, and may have losses of weights that are not there yet.
        losses_of_earlier_calls=list(model.losses) if model.built else [],
    )
    loss, hits, train_op = step.run(features, labels)
    tf.compat.v1.summary.scalar("train_accuracy", hits / tf.cast(tf.size(labels), hits.dtype))
    tf.compat.v1.summary.scalar("learning_rate", rate)
    if scale:
        tf.compat.v1.summary.scalar("loss_scale", scale.value)
        tf.compat.v1.add_to_collection(SKIPPED_STEPS, tf.identity(scale.skipped))
    return tf.estimator.EstimatorSpec(ModeKeys.TRAIN, loss=loss, train_op=train_op)


def _compiled_of_step(xla: bool, parts: int) -> str:
    """What XLA compiles; in the context of the strategy that trains."""
    if not xla:
        return _NOTHING
    return _WHOLE if takes_step(parts) else _PARTS


@dataclasses.dataclass(frozen=True)
class _Step:
    """A training step of an Estimator's graph.

    Args:
        division: Where the network's layers are; None is on one device.
        divided: The declared trainer, where it puts layers on several devices.
        rate: The learning rate of this step.
        global_step: The variable that counts steps.
        parts: Of a batch: see `accumulation.in_turn`.
        parallel: Parts of each of these: see `parallel_parts.in_parallel`.
        compiled: What XLA compiles: the whole step, what computes each part of a batch, or nothing.
        losses_of_earlier_calls: Losses that the network lists, and that are of no call of this step; each call adds
            its own.
    """

    model: tf.keras.Model
    params: dict[str, Any]
    division: Optional[Division]
    divided: Optional[TrainerSection]
    objective: Objective
    section: Optimizer
    rate: tf.Tensor
    global_step: tf.Variable
    parts: int
    parallel: int
    compiled: str
    compiler: Compiler
    losses_of_earlier_calls: list[tf.Tensor]

    def run(
        self, features: dict[str, tf.Tensor], labels: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, Union[tf.Tensor, tf.Operation]]:
        """Trains by a batch: returns its loss, how many are classified rightly, and what does the step."""
        if self.compiled != _WHOLE:
            return self._update(features, labels)
        loss, hits = self.compiler.step(lambda *batch: self._update(*batch)[:2])(features, labels)
        # A function does its updates by itself.
        return loss, hits, tf.group(loss, hits)

    def _update(self, features: dict[str, tf.Tensor], labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Operation]:
        """Computes a batch, and updates the weights by it."""
        whole = self._compute(features, labels)
        require_trainable(self.model)
        gradients = self.objective.unscaled(whole.gradients)
        compression = self.params.get("gradient_compression", NONE)
        optimizer = make_optimizer(self.section, self.rate, self.global_step, compression, self.objective.scale)
        variables = stored(self.model.trainable_variables)
        train_op = update(gradients, variables, optimizer, self.global_step, before=whole.updates)
        return whole.loss, whole.hits, train_op

    def _compute(self, features: dict[str, tf.Tensor], labels: tf.Tensor) -> Computed:
        """Computes a batch: by stages on several devices, or part after part."""
        division, divided = self.division, self.divided
        if division and divided and division.stages:
            # Called whole once, for its variables to have the names that they have elsewhere; nothing of it is run.
            _logits(self.model, inputs_of(self.model, features), self.params, division=division)
            with all_done() as begin:
                pipeline = division.pipeline(self.model, divided, **self.objective.of_pipeline())
                whole = pipeline.compute(features, labels)
        else:
            with all_done() as begin:
                compute = in_parallel(self._compute_part, self.parallel)
                whole = in_turn(
                    self.compiler.part(compute) if self.compiled == _PARTS else compute, features, labels, self.parts
                )
        # Of layers that keep a state of their own in `call`.
        found = assignments(begin, self.model.weights, known=whole.updates)
        if self.parallel > 1 and (found or whole.updates):
            raise refuse_state(self.parallel, self.model)
        return dataclasses.replace(whole, updates=[*whole.updates, *found])

    def _compute_part(self, part: Part) -> Computed:
        model, inputs = self.model, inputs_of(self.model, part.features)
        with dropout_keys(told_apart(part.features), self.params["seed"]):
            logits = _logits(model, inputs, self.params, training=True, division=self.division)
        # Keras lists those of each call.
        earlier = self.losses_of_earlier_calls
        own = [each for each in model.losses if not any(each is other for other in earlier)]
        earlier.extend(own)
        loss = self.objective.loss(part, logits, own, model.trainable_variables)
        averages = model.get_updates_for(None) + model.get_updates_for(inputs)  # of batch normalisation
        gradients = gradients_of(self.objective.scaled(loss), stored(model.trainable_variables))
        return Computed(loss, count_hits(logits, part.labels, loss.dtype), gradients, averages)


def _evaluate(logits: tf.Tensor, labels: tf.Tensor) -> tf.estimator.EstimatorSpec:
    # Neither smoothed nor weighted, so that it can be compared with that of other declarations.
    per_example = classification_loss(labels, tf.cast(logits, tf.float32))
    metrics = {
        "accuracy": tf.compat.v1.metrics.accuracy(labels, tf.argmax(logits, axis=-1)),
        # An Estimator's own `loss` is a mean of batch means; this is the mean over examples.
        "average_loss": tf.compat.v1.metrics.mean(per_example),
    }
    return tf.estimator.EstimatorSpec(ModeKeys.EVAL, loss=tf.reduce_mean(per_example), eval_metric_ops=metrics)
