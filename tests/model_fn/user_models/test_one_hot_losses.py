"""Losses of one-hot labels are refused where labels are numbers, and nothing else is."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tfx_estimator.model_fn.user_models.checks import check_compiled
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.trainer import TrainerSection

pytestmark = pytest.mark.unit

SPARSE = "sparse_categorical_crossentropy"


def _model(loss, units=(3,), kind=None):
    image = tf.keras.Input([4], name="image")
    outputs = [tf.keras.layers.Dense(count, name=name)(image) for count, name in zip(units, "ab")]
    model = (kind or tf.keras.Model)(image, outputs if outputs[1:] else outputs[0])
    model.compile("sgd", loss() if callable(loss) else loss)
    return model


def _check(model):
    check_compiled(model, "nets:mine", model.output)


@pytest.mark.parametrize(
    ("loss", "named"),
    [
        ("categorical_crossentropy", "categorical_crossentropy"),
        (["kld"], "kld"),
        ({"a": "mse"}, "mse"),
        ("binary_crossentropy", "binary_crossentropy"),
        (lambda: tf.keras.losses.CategoricalCrossentropy(from_logits=True), "CategoricalCrossentropy"),
        (lambda: tf.keras.losses.CategoricalHinge(), "CategoricalHinge"),
        (lambda: tf.keras.losses.cosine_similarity, "cosine_similarity"),
    ],
)
def test_a_loss_of_one_hot_labels_is_refused(loss, named):
    with pytest.raises(UserCodeError, match=f"the loss {named}, which is of one-hot labels") as caught:
        _check(_model(loss))
    assert "sparse_categorical_crossentropy, or a loss of your own that calls tf.one_hot" in caught.value.todo


def test_of_several_outputs_each_has_its_own():
    for loss in ([SPARSE, "mse"], {"a": SPARSE, "b": "mse"}, {"a": SPARSE}):
        _check(_model(loss, (3, 1)))
    for loss in ([SPARSE, "mse"], {"b": "mse"}, "mse"):
        with pytest.raises(UserCodeError, match="the loss mse"):
            _check(_model(loss, (3, 2)))


def _own():
    """What a user may write."""

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
def test_what_is_the_users_own_or_of_numbers_is_not(loss, units):
    _check(_model(loss, units))


@pytest.mark.parametrize(
    ("methods", "told"),
    [(["compute_loss"], ""), (["train_step", "test_step"], "the loss mse")],
)
def test_what_a_method_of_the_users_gives_labels_of_its_own_is_not(methods, told):
    kind = type("Own", (tf.keras.Model,), {name: lambda *values, **named: None for name in methods})
    model = _model("mse", kind=kind)
    if not told:
        _check(model)
        return
    with pytest.raises(UserCodeError, match=told):
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
    if not named:
        _check(model)
        return
    with pytest.raises(UserCodeError, match=f"the metric {named}, which is of one-hot labels"):
        _check(model)


def test_of_a_class_of_its_own_the_outputs_tell(monkeypatch):
    from tfx_estimator.components.trainer.keras import model

    class Own(tf.keras.Model):
        def __init__(self, units):
            super().__init__()
            self.dense = tf.keras.layers.Dense(units)

        def call(self, images):
            return self.dense(images)

    def compiled(num_classes, units):
        made = Own(units)
        made.compile("sgd", "mse")
        return made

    spec = {"image": tf.io.FixedLenFeature([4], tf.float32), "label": tf.io.FixedLenFeature([], tf.int64)}
    monkeypatch.setattr(model, "find_function", lambda _: compiled)
    makers = [
        model.ModelMaker(TrainerSection(model="own:network", train_steps=1, params={"units": units}), 3, spec)
        for units in (1, 3)
    ]
    makers[0].make()
    with pytest.raises(UserCodeError, match="the loss mse"):
        makers[1].make()
