"""Losses and metrics of one-hot labels are refused where labels are numbers, and nothing else is."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.errors import UserCodeError

pytestmark = pytest.mark.unit

SPARSE = "sparse_categorical_crossentropy"


@pytest.fixture(scope="module")
def tf():
    import tensorflow

    return tensorflow


def _model(tf, loss, units=(3,), kind=None, shape=None, **options):
    image = tf.keras.Input([4], name="image")
    outputs = [tf.keras.layers.Dense(count, name=name)(image) for count, name in zip(units, "ab")]
    if shape is not None:
        outputs = [tf.keras.layers.Reshape(shape, name="shaped")(each) for each in outputs]
    model = (kind or tf.keras.Model)(image, outputs if outputs[1:] else outputs[0])
    model.compile("sgd", loss, **options)
    return model


def _made(tf, metric):
    """Of a class, an instance; else its name."""
    found = getattr(tf.keras.metrics, metric)
    return found() if isinstance(found, type) else metric


def _check(tf, model, num_classes=0):
    from tfx_estimator.model_fn.compiled_checks import check_compiled
    from tfx_estimator.pipeline.config.distribution import Distribution

    check_compiled(model, "nets:mine", Distribution(), "float32", model.output, num_classes)


@pytest.mark.parametrize(
    ("loss", "named"),
    [
        ("categorical_crossentropy", "categorical_crossentropy"),
        (["categorical_crossentropy"], "categorical_crossentropy"),
        ({"a": "categorical_crossentropy"}, "categorical_crossentropy"),
        ("kl_divergence", "kl_divergence"),
        ("kld", "kld"),
        ("cosine_similarity", "cosine_similarity"),
        (lambda tf: tf.keras.losses.CategoricalCrossentropy(from_logits=True), "CategoricalCrossentropy"),
        (lambda tf: tf.keras.losses.CategoricalFocalCrossentropy(), "CategoricalFocalCrossentropy"),
        (lambda tf: tf.keras.losses.CategoricalHinge(), "CategoricalHinge"),
        (lambda tf: tf.keras.losses.KLDivergence(), "KLDivergence"),
        (lambda tf: tf.keras.losses.categorical_hinge, "categorical_hinge"),
        ("mse", "mse"),
        (["mae"], "mae"),
        ("binary_crossentropy", "binary_crossentropy"),
        (lambda tf: tf.keras.losses.BinaryCrossentropy(), "BinaryCrossentropy"),
        (lambda tf: tf.keras.losses.mean_squared_error, "mean_squared_error"),
    ],
)
def test_a_loss_of_one_hot_labels_is_refused(tf, loss, named):
    model = _model(tf, loss(tf) if callable(loss) else loss)
    with pytest.raises(UserCodeError, match=f"the loss {named}, which is of .*one-hot labels") as caught:
        _check(tf, model)
    assert "sparse_categorical_crossentropy, or a loss of your own that calls tf.one_hot" in caught.value.todo


@pytest.mark.parametrize("given", ["metrics", "weighted_metrics"])
@pytest.mark.parametrize(
    "metric",
    ["CategoricalAccuracy", "TopKCategoricalAccuracy", "CategoricalCrossentropy", "AUC", "mse", "categorical_accuracy"],
)
def test_so_is_a_metric(tf, metric, given):
    model = _model(tf, SPARSE, **{given: ["accuracy", _made(tf, metric)]})
    with pytest.raises(UserCodeError, match=r"the metric \w+, which is of .*one-hot labels") as caught:
        _check(tf, model)
    assert "tf.one_hot" in caught.value.todo


def test_of_several_outputs_each_has_its_own(tf):
    for loss in ([SPARSE, "mse"], {"a": SPARSE, "b": "mse"}):
        _check(tf, _model(tf, loss, (3, 1), metrics={"a": "accuracy", "b": ["mae"]}))
        with pytest.raises(UserCodeError, match="the loss mse"):
            _check(tf, _model(tf, loss, (3, 2)))
    for metrics in ({"a": ["mae"]}, [["mae"], []], ["mae", SPARSE]):
        with pytest.raises(UserCodeError, match="the metric mae"):
            _check(tf, _model(tf, SPARSE, (3, 1), metrics=metrics))
    _check(tf, _model(tf, SPARSE, (3, 1), metrics=[[], ["mae"]]))


@pytest.mark.parametrize("shape", [[2, 2, 3], [2, 6, 1], [1, 12]])
def test_an_image_is_not_compared_with_the_labels_of_a_batch(tf, shape):
    spread = "the {} {}, which is of .* Keras spreads the labels of the whole batch over it"
    for loss in ("mse", "binary_crossentropy"):
        with pytest.raises(UserCodeError, match=spread.format("loss", loss)) as caught:
            _check(tf, _model(tf, loss, (12,), shape=shape))
        assert "end the model with a Dense layer" in caught.value.todo
    own = _own(tf)["function"][0][0]
    _check(tf, _model(tf, own, (12,), shape=shape))
    with pytest.raises(UserCodeError, match=spread.format("metric", "mae")):
        _check(tf, _model(tf, own, (12,), shape=shape, metrics=["mae"]))


@pytest.mark.parametrize(
    ("loss", "metric", "named"),
    [
        ("binary_crossentropy", None, "loss binary_crossentropy"),
        (lambda tf: tf.keras.losses.BinaryCrossentropy(from_logits=True), None, "loss BinaryCrossentropy"),
        ("squared_hinge", None, "loss squared_hinge"),
        (["hinge"], None, "loss hinge"),
        ("mse", "BinaryAccuracy", "metric BinaryAccuracy"),
        ("mse", "BinaryCrossentropy", "metric BinaryCrossentropy"),
        ("mse", "accuracy", "metric accuracy"),
    ],
)
def test_what_is_of_two_classes_is_refused_of_more(tf, loss, metric, named):
    metrics = [_made(tf, metric) if metric != "accuracy" else metric] if metric else []
    model = _model(tf, loss(tf) if callable(loss) else loss, (1,), metrics=metrics)
    for known in (0, 2):
        _check(tf, model, known)
    with pytest.raises(UserCodeError, match=f"the {named}, which is of two classes .*; the data have 10") as caught:
        _check(tf, model, 10)
    assert "end the model with Dense(10), and compile it with " in caught.value.todo


def test_of_more_than_two_classes_one_number_may_be_near_the_label(tf):
    _check(tf, _model(tf, "mse", (1,), metrics=["mae", tf.keras.metrics.RootMeanSquaredError()]), 10)
    # For the other output the name is of the sparse one.
    _check(tf, _model(tf, {"a": SPARSE, "b": "mse"}, (10, 1), metrics=["accuracy"]), 10)


def _own(tf):
    """What a user may write, by what it is for."""

    def categorical_crossentropy(labels, scores):
        labels = tf.one_hot(tf.cast(tf.reshape(labels, [-1]), tf.int32), 3)
        return tf.keras.losses.categorical_crossentropy(labels, scores)

    class Loss(tf.keras.losses.CategoricalCrossentropy):
        def call(self, y_true, y_pred):
            return categorical_crossentropy(y_true, y_pred)

    class Metric(tf.keras.metrics.CategoricalAccuracy):
        def update_state(self, y_true, y_pred, sample_weight=None):
            return super().update_state(tf.one_hot(tf.reshape(y_true, [-1]), 3), y_pred, sample_weight)

    return {
        "function": ((categorical_crossentropy,), {"metrics": [categorical_crossentropy]}),
        "class": ((Loss(),), {"metrics": [Metric()]}),
        "names": ((SPARSE,), {"metrics": ["accuracy", "acc", "ce", "sparse_top_k_categorical_accuracy"]}),
        "sparse": ((tf.keras.losses.SparseCategoricalCrossentropy(),), {"weighted_metrics": ["accuracy"]}),
        "binary": (("binary_crossentropy", (1,)), {"metrics": ["accuracy", tf.keras.metrics.AUC()]}),
        "regression": (("mse", (1,)), {"metrics": ["mae", tf.keras.metrics.RootMeanSquaredError()]}),
        "none": ((SPARSE,), {}),
    }


@pytest.mark.parametrize("case", ["function", "class", "names", "sparse", "binary", "regression", "none"])
def test_what_is_the_users_own_or_of_numbers_is_not(tf, case):
    given, options = _own(tf)[case]
    _check(tf, _model(tf, *given, **options))


@pytest.mark.parametrize(
    ("methods", "loss", "metrics", "told"),
    [
        (["compute_loss"], "categorical_crossentropy", [], ""),
        (["compute_loss"], "mse", ["CategoricalAccuracy"], "the metric CategoricalAccuracy"),
        (["test_step"], SPARSE, ["CategoricalAccuracy"], ""),
        (["compute_metrics"], SPARSE, ["CategoricalAccuracy"], ""),
        (["train_step", "test_step"], "mse", ["mae"], ""),
        (["train_step"], "mse", [], "the loss mse"),
        (["train_step", "test_step"], "categorical_crossentropy", [], "the loss categorical_crossentropy"),
    ],
)
def test_what_a_method_of_the_users_gives_labels_of_its_own_is_not(tf, methods, loss, metrics, told):
    kind = type("Own", (tf.keras.Model,), {name: lambda *values, **named: None for name in methods})
    model = _model(tf, loss, kind=kind, metrics=[_made(tf, each) for each in metrics])
    if not told:
        _check(tf, model)
        return
    with pytest.raises(UserCodeError, match=told):
        _check(tf, model)


def test_of_a_class_of_its_own_the_outputs_tell(tf, monkeypatch):
    from tfx_estimator.components.trainer.keras import model
    from tfx_estimator.pipeline.config.trainer import TrainerSection

    class Own(tf.keras.Model):
        def __init__(self, units):
            super().__init__()
            self.dense = tf.keras.layers.Dense(units)

        def call(self, images):
            return self.dense(images)

    def compiled(num_classes, units, loss):
        made = Own(units)
        made.compile("sgd", loss)
        return made

    spec = {"image": tf.io.FixedLenFeature([4], tf.float32), "label": tf.io.FixedLenFeature([], tf.int64)}
    monkeypatch.setattr(model, "find_function", lambda _: compiled)
    for units, loss, told in ((1, "mse", ""), (3, "mse", "the loss mse"), (1, "hinge", "the data have 3 classes")):
        section = TrainerSection(model="own:network", train_steps=1, params={"units": units, "loss": loss})
        maker = model.ModelMaker(section, 3, spec)
        if not told:
            maker.make()
            continue
        with pytest.raises(UserCodeError, match=told):
            maker.make()
