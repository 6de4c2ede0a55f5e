"""Checks of options for a user's training step, and of compiled models: losses and metrics of one-hot labels."""

from __future__ import annotations

import contextlib

import pytest
import tensorflow as tf

from tfx_estimator.model_fn.user_models.checks import check_compiled, refuse_step_options
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.trainer import TrainerSection


def _refused(message: str):
    """Expects an error with this message; none if it is empty."""
    return pytest.raises(UserCodeError, match=message) if message else contextlib.nullcontext()


METHODS = ("train_step", "test_step", "compute_loss", "compute_metrics")


@pytest.mark.parametrize("base", ["Model", "Sequential"])
@pytest.mark.parametrize("path", ["keras", "estimator", "in the graph"])
@pytest.mark.parametrize("method", ["", *METHODS])
def test_overridden_methods_of_an_uncompiled_model_are_refused_on_every_path(look, method, path, base):
    kind = getattr(tf.keras, base)
    if method:
        kind = type("Own", (kind,), {method: lambda *_, **__: None})

    def network(num_classes):
        if path == "in the graph" and tf.executing_eagerly():
            raise ValueError("only there")
        layers = tf.keras.layers
        if base == "Sequential":
            return kind([layers.Flatten(), layers.Dense(num_classes)])
        image = tf.keras.Input([4, 4, 1])
        return kind(image, layers.Dense(num_classes)(layers.Flatten()(image)))

    with _refused(method and f"Own that is not compiled, has a {method} of its own") as caught:
        look(network, path)
    assert not method or caught.value.todo == f"compile the model in the function, with its loss; or remove {method}"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("gradient_accumulation", 2),
        ("parallel_parts", 2),
        ("model_parallel", {"devices": ["cpu:0", "cpu:1"], "layers": {"a": 1}}),
        ("pipeline_parallel", {"stages": 2, "microbatches": 2}),
        ("xla", True),
        ("precision", "mixed_bfloat16"),
        ("", None),
    ],
)
def test_options_of_the_built_in_step_are_refused_where_another_trains(option, value):
    declared = {"train_steps": 9, "model": "mine:net", **({option: value} if option else {"parallel_parts": "auto"})}
    section = TrainerSection.parse_obj(declared)
    with _refused(option and f"trainer.{option} is declared, and 'mine:net' is compiled"):
        refuse_step_options(section, "is compiled")


SPARSE = "sparse_categorical_crossentropy"


def _model(loss, units=(3,), kind=None):
    image = tf.keras.Input([4], name="image")
    outputs = [tf.keras.layers.Dense(count, name=name)(image) for count, name in zip(units, "ab")]
    model = (kind or tf.keras.Model)(image, outputs if outputs[1:] else outputs[0])
    model.compile("sgd", loss() if callable(loss) else loss)
    return model


def _check(model):
    check_compiled(model, "nets:mine", model.output)


def _of_tensorflow_1():
    return tf.compat.v1.train.GradientDescentOptimizer(0.1)


@pytest.mark.parametrize(
    ("loss", "optimizer", "message"),
    [
        (None, lambda: "sgd", "compiled without a loss"),
        (SPARSE, lambda: tf.keras.optimizers.SGD(0.1, use_ema=True), "use_ema"),
        (SPARSE, _of_tensorflow_1, "compiled with GradientDescentOptimizer, an optimizer of TensorFlow 1"),
    ],
)
def test_losses_and_optimizers_that_cannot_be_evaluated_or_saved_are_refused(loss, optimizer, message):
    model = _model(SPARSE)
    _check(model)
    model.compile(optimizer(), loss)
    with pytest.raises(UserCodeError, match=message):
        _check(model)


@pytest.mark.parametrize(
    ("loss", "named"),
    [
        ("categorical_crossentropy", "categorical_crossentropy"),
        (["kld"], "kld"),
        ({"a": "mse"}, "mse"),
        (lambda: tf.keras.losses.CategoricalCrossentropy(from_logits=True), "CategoricalCrossentropy"),
        (lambda: tf.keras.losses.cosine_similarity, "cosine_similarity"),
    ],
)
def test_a_loss_of_one_hot_labels_is_refused(loss, named):
    with pytest.raises(UserCodeError, match=f"the loss {named}, which is of one-hot labels") as caught:
        _check(_model(loss))
    assert "sparse_categorical_crossentropy, or a loss of your own that calls tf.one_hot" in caught.value.todo


def test_each_of_several_outputs_has_its_own_loss():
    for loss in ([SPARSE, "mse"], {"a": SPARSE, "b": "mse"}, {"a": SPARSE}):
        _check(_model(loss, (3, 1)))
    for loss in ([SPARSE, "mse"], {"b": "mse"}, "mse"):
        with pytest.raises(UserCodeError, match="the loss mse"):
            _check(_model(loss, (3, 2)))


def _own():
    """A loss that a user may write."""

    class Loss(tf.keras.losses.CategoricalCrossentropy):
        def call(self, y_true, y_pred):
            return super().call(tf.one_hot(tf.cast(tf.reshape(y_true, [-1]), tf.int32), 3), y_pred)

    return Loss()


@pytest.mark.parametrize(
    ("loss", "units"),
    [
        (_own, (3,)),
        (lambda: lambda labels, scores: scores, (3,)),
        (lambda: tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0), (3,)),
        (SPARSE, (1000,)),
        ("binary_crossentropy", (1,)),
        ("mse", (1,)),
    ],
)
def test_a_users_own_loss_and_losses_of_numbers_are_accepted(loss, units):
    _check(_model(loss, units))


@pytest.mark.parametrize(("methods", "text"), [(["compute_loss"], ""), (["train_step", "test_step"], "the loss mse")])
def test_a_loss_is_accepted_only_if_a_users_compute_loss_replaces_it(methods, text):
    kind = type("Own", (tf.keras.Model,), {name: lambda *values, **named: None for name in methods})
    model = _model("mse", kind=kind)
    with _refused(text):
        _check(model)


@pytest.mark.parametrize(
    ("metrics", "named"),
    [
        (["accuracy", "sparse_top_k_categorical_accuracy"], ""),
        (["categorical_accuracy"], "categorical_accuracy"),
        ([lambda: tf.keras.metrics.TopKCategoricalAccuracy(2)], "TopKCategoricalAccuracy"),
    ],
)
def test_a_metric_of_one_hot_labels_is_refused(metrics, named):
    model = _model(SPARSE)
    model.compile("sgd", SPARSE, metrics=[each() if callable(each) else each for each in metrics])
    with _refused(named and f"the metric {named}, which is of one-hot labels"):
        _check(model)
