"""The Estimator model_fn that trains any network function."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, Optional

import tensorflow as tf
from tensorflow.core.protobuf import rewriter_config_pb2

from tfx_estimator.model_fn.optim.gradients import NONE
from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.model_fn.parallel.division import Division, find_division, is_whole
from tfx_estimator.model_fn.step.compiling import Compiler
from tfx_estimator.model_fn.step.head import Head, flat
from tfx_estimator.model_fn.step.objective import Objective
from tfx_estimator.model_fn.step.precision import FLOAT16, FLOAT32, SKIPPED_STEPS, LossScale, require_declared, use
from tfx_estimator.model_fn.step.step import Step, logits_of
from tfx_estimator.model_fn.unconverted import unconverted
from tfx_estimator.model_fn.user_models.given_weights import GivenWeights
from tfx_estimator.model_fn.user_models.keras_model import explained, require_trainable
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.config.optimizer import Optimizer
from tfx_estimator.pipeline.config.trainer import TrainerSection

Network = Callable[[int], tf.keras.Model]


def make_model_fn(
    network: Network, divided: Optional[TrainerSection] = None, given: Optional[GivenWeights] = None
) -> Callable[..., tf.estimator.EstimatorSpec]:
    """Returns the model_fn that trains `network`.

    Args:
        network: Builds the model; see `model_fn.networks`.
        divided: The declared trainer, if it places layers on several devices.
        given: Initial weights, which `network` loads into its model.

    Returns:
        A `model_fn(features, labels, mode, params)` for `tf.estimator.Estimator`. `features` holds `image`, float32
        [batch, height, width, channels], or the features that the network's inputs are named after; `labels` is int64
        [batch]. `params` holds `num_classes`, `train_steps`, `global_batch_size` (examples), `seed` and `optimizer`
        (the declared section, as a dict). It may hold `label_smoothing`, `class_weights` (by label),
        `gradient_accumulation` (parts of a batch, in turn), `parallel_parts` (of each of these, in parallel),
        `gradient_compression`, `precision` of the network, `xla` (to compile the step), `label_names`, to serve the
        classes' names, and the entries that `Head.of` reads.
    """

    def model_fn(
        features: dict[str, tf.Tensor], labels: tf.Tensor, mode: str, params: dict[str, Any]
    ) -> tf.estimator.EstimatorSpec:
        return make_spec(features, labels, mode, params)

    # Estimators convert their model_fn under a mirrored strategy, and read its arguments, which a decorator would hide.
    @unconverted
    def make_spec(
        features: dict[str, tf.Tensor], labels: tf.Tensor, mode: str, params: dict[str, Any]
    ) -> tf.estimator.EstimatorSpec:
        trains = mode == ModeKeys.TRAIN
        use(params.get("precision", FLOAT32), trains)
        serves = mode == ModeKeys.PREDICT
        head = Head.of(params)
        labels = labels if serves else flat(labels)
        division = None if serves or divided is None or is_whole() else divide(divided, features, params, trains)
        # Keras draws initial weights' seeds from its own generator, which RunConfig's tf_random_seed does not set.
        tf.keras.utils.set_random_seed(params["seed"])
        with division.used() if division else contextlib.nullcontext():
            model = build(params, trains)

        def call(features: dict[str, tf.Tensor], training: bool = False) -> tf.Tensor:
            with explained(features):
                logits = logits_of(model, head.inputs(features), training, division, params["num_classes"])
            if division:
                division.check(model)
            return logits

        if trains:
            spec = _train(model, call, features, labels, params, division, head)
            if given:
                given.begin(model)
            return spec
        if serves:
            return _predict(head.answers(call(features), params.get("label_names", ())))
        return _evaluate(head, call(features), features, labels)

    def build(params: dict[str, Any], trains: bool) -> tf.keras.Model:
        """Calls the user's function."""
        model = network(params["num_classes"])
        require_declared(params.get("precision", FLOAT32), model, trains)
        return model

    found: list[Optional[Division]] = []

    def divide(
        section: TrainerSection, features: dict[str, tf.Tensor], params: dict[str, Any], trains: bool
    ) -> Optional[Division]:
        """Returns the division, found once by constructing a network in a scratch graph."""
        if not found:
            shapes = {name: tf.TensorSpec([1, *each.shape[1:]], each.dtype) for name, each in features.items()}
            with tf.Graph().as_default():
                found.append(find_division(section, lambda: build(params, trains), shapes))
        return found[0]

    return model_fn


def _predict(outputs: dict[str, tf.Tensor]) -> tf.estimator.EstimatorSpec:
    return tf.estimator.EstimatorSpec(
        ModeKeys.PREDICT,
        predictions=outputs,
        export_outputs={tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY: tf.estimator.export.PredictOutput(outputs)},
    )


def _train(
    model: tf.keras.Model,
    call: Callable[..., tf.Tensor],
    features: dict[str, tf.Tensor],
    labels: tf.Tensor,
    params: dict[str, Any],
    division: Optional[Division],
    head: Head,
) -> tf.estimator.EstimatorSpec:
    section = Optimizer.parse_obj(params["optimizer"])
    scale = LossScale() if params.get("precision") == FLOAT16 else None
    optimizer = DeclaredOptimizer(section, params["train_steps"], params.get("gradient_compression", NONE), scale)
    optimizer.iterations = tf.compat.v1.train.get_or_create_global_step()
    rate = optimizer.learning_rate(optimizer.iterations)
    xla = params.get("xla", False)
    if xla:
        # Creates the variables, which a compiled function cannot.
        call(tf.nest.map_structure(lambda each: each[:1], features))
    elif division and division.stages:
        # Creates the variables under their usual names; these operations never run.
        call(features)
    step = Step(
        network=model,
        optimizer=optimizer,
        objective=Objective(
            loss_options={key: params[key] for key in ("label_smoothing", "class_weights") if key in params},
            weight_decay=section.weight_decay,
            global_batch_size=params["global_batch_size"],
            colocate=division is not None,
            scale=scale,
            head=head,
        ),
        call=functools.partial(call, training=True),
        seed=params["seed"],
        division=division,
        in_turn=params.get("gradient_accumulation", 1),
        at_once=params.get("parallel_parts", 1),
        xla=xla,
        compiler=Compiler(model),
    )

    def train(features: dict[str, tf.Tensor], labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, Any]:
        computed = step.compute(features, labels)
        require_trainable(model)
        # Read the rate of this step before the global step increases.
        with tf.control_dependencies([*computed.updates, *([] if step.is_compiled_whole else [rate])]):
            applied = optimizer.apply_gradients(step.pairs(computed))
        # A compiled function runs its updates automatically.
        return computed.loss, computed.hits, [] if step.is_compiled_whole else applied

    loss, hits, applied = step.run(train, features, labels)
    if not head.is_regression:
        tf.compat.v1.summary.scalar("train_accuracy", hits / tf.cast(tf.size(labels), hits.dtype))
    tf.compat.v1.summary.scalar("learning_rate", rate)
    if scale:
        tf.compat.v1.summary.scalar("loss_scale", scale.value)
        tf.compat.v1.add_to_collection(SKIPPED_STEPS, tf.identity(scale.skipped))
    return tf.estimator.EstimatorSpec(ModeKeys.TRAIN, loss=loss, train_op=tf.group(loss, hits, applied))


def _evaluate(
    head: Head, logits: tf.Tensor, features: dict[str, tf.Tensor], labels: tf.Tensor
) -> tf.estimator.EstimatorSpec:
    # Neither smoothed nor weighted by class, so that it compares across declarations.
    per_example = head.losses(labels, tf.cast(logits, tf.float32))
    weights = head.weights(features, per_example) if head.weight else None
    # The mean over examples; an Estimator's own `loss` is a mean of batch means.
    metrics = {"average_loss": tf.compat.v1.metrics.mean(per_example, weights)}
    if not head.is_regression:
        metrics["accuracy"] = tf.compat.v1.metrics.accuracy(labels, tf.argmax(logits, axis=-1), weights)
    if head.is_binary:
        metrics["auc"] = tf.compat.v1.metrics.auc(labels, tf.nn.softmax(logits)[:, 1], weights)
    loss = tf.nn.weighted_moments(per_example, 0, weights)[0] if head.weight else tf.reduce_mean(per_example)
    return tf.estimator.EstimatorSpec(ModeKeys.EVAL, loss=loss, eval_metric_ops=metrics)


def make_run_config(section: TrainerSection, model_dir: str) -> tf.estimator.RunConfig:
    """Builds the RunConfig, without strategies, which are added to any RunConfig, a trainer_fn's included."""
    return tf.estimator.RunConfig(
        model_dir=model_dir,
        tf_random_seed=section.seed,
        save_summary_steps=section.report_steps,
        save_checkpoints_steps=section.checkpoint_steps,
        keep_checkpoint_max=section.keep_checkpoint_max,
        log_step_count_steps=section.report_steps,
        session_config=_session_config(section),
    )


def _session_config(section: TrainerSection) -> tf.compat.v1.ConfigProto:
    # A session creates its own logical CPUs, regardless of tf.config.
    cpus = {"device_count": {"CPU": section.logical_cpus}} if section.logical_cpus else {}
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True, **cpus)
    config.experimental.disable_thread_spinning = not section.spinning
    if section.xla:
        # Under a strategy TensorFlow would also fuse operations within the step, into some that XLA does not support.
        config.graph_options.rewrite_options.remapping = rewriter_config_pb2.RewriterConfig.OFF
    return config
