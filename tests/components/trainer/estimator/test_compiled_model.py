"""A compiled model in an Estimator: trained as on the Keras paths, or refused."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.errors import UserCodeError

pytestmark = pytest.mark.unit

STEPS, BATCH, FEATURES, CLASSES = 30, 32, 20, 5
# Of float32.
CLOSE = 1e-5
# Names in tf.keras.optimizers, and their options.
TRAINED: dict[str, tuple[str, dict[str, Any]]] = {
    "RMSprop with momentum": ("RMSprop", {"momentum": 0.9, "centered": True}),
    "Adam clipped": ("Adam", {"clipnorm": 0.05}),
    "legacy RMSprop": ("legacy.RMSprop", {}),
    "SGD": ("SGD", {"momentum": 0.9, "nesterov": True, "clipvalue": 0.01}),
    "SGD clipped": ("SGD", {"learning_rate": 0.5, "global_clipnorm": 0.05}),
    "Adam": ("Adam", {"amsgrad": True}),
    "Adadelta": ("Adadelta", {"learning_rate": 1.0}),
    "Adagrad": ("Adagrad", {}),
    "Adamax": ("Adamax", {}),
    "Ftrl": ("Ftrl", {"l1_regularization_strength": 0.001}),
    "legacy Nadam": ("legacy.Nadam", {}),
    "legacy Adam": ("legacy.Adam", {}),
}
ALWAYS = ("RMSprop with momentum", "Adam clipped")


@pytest.fixture(scope="module")
def tf():
    import tensorflow

    return tensorflow


def _batch() -> tuple[dict[str, np.ndarray], np.ndarray]:
    random = np.random.default_rng(0)
    return {"image": random.random((BATCH, FEATURES), np.float32)}, random.integers(0, CLASSES, BATCH)


def _model(tf: Any, optimizer: str, kind: Any = None, **options: Any) -> Any:
    make = functools.reduce(getattr, optimizer.split("."), tf.keras.optimizers)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return _compiled(tf, kind=kind, optimizer=make(**{"learning_rate": 0.01, **options}), loss=loss)


def _compiled(tf: Any, outputs: Any = None, regularizer: Any = None, kind: Any = None, **options: Any) -> Any:
    """Compiled with these options; its outputs are what a function makes of the hidden layer, or the logits."""
    tf.keras.utils.set_random_seed(1)
    image = tf.keras.Input([FEATURES], name="image")
    hidden = tf.keras.layers.Dense(16, activation="relu", kernel_regularizer=regularizer)(image)
    model = (kind or tf.keras.Model)(image, (outputs or tf.keras.layers.Dense(CLASSES))(hidden))
    model.compile(**options)
    return model


def _estimator(tf: Any, model: Any, folder: str = "", **config: Any) -> Any:
    from tfx_estimator.components.trainer.estimator.compiled_model import make_estimator

    settings = Settings(
        declaration={"trainer": {"model": "own:model", "train_steps": STEPS}}, label_names=tuple("abcde")
    )
    return make_estimator(model, settings, tf.estimator.RunConfig(folder or None, **config))


def _trained_by_an_estimator(tf: Any, make: Callable[[], Any], folder: str) -> list[float]:
    class Losses(tf.compat.v1.train.SessionRunHook):
        """Keeps each step's."""

        def __init__(self):
            self.seen = []

        def before_run(self, run_context):
            return tf.compat.v1.train.SessionRunArgs(tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.LOSSES)[0])

        def after_run(self, run_context, run_values):
            self.seen.append(float(run_values.results))

    losses = Losses()
    batches = lambda: tf.data.Dataset.from_tensors(_batch()).repeat()  # noqa: E731
    _estimator(tf, make(), folder).train(batches, steps=STEPS, hooks=[losses])
    return losses.seen


def _trained_by_keras(tf: Any, make: Callable[[], Any]) -> list[float]:
    from tfx_estimator.components.trainer.keras.drivers import make_execute
    from tfx_estimator.model_fn.compiled_classifier import CompiledClassifier

    own = make()
    model = CompiledClassifier(own, TrainerSection(model="own:model", train_steps=STEPS), CLASSES)
    model.compile(optimizer=own.optimizer)
    execute = make_execute(model, tf.distribute.get_strategy())
    batches = iter(tf.data.Dataset.from_tensors(_batch()).repeat())
    return [float(execute(batches, tf.constant(1, tf.int64))["loss"]) for _ in range(STEPS)]


@pytest.mark.parametrize(
    "case", [each if each in ALWAYS else pytest.param(each, marks=pytest.mark.long) for each in TRAINED]
)
def test_the_losses_are_those_of_the_keras_paths(tf, tmp_path, case):
    optimizer, options = TRAINED[case]
    make = functools.partial(_model, tf, optimizer, **options)
    keras, estimator = _trained_by_keras(tf, make), _trained_by_an_estimator(tf, make, str(tmp_path))
    assert keras[-1] < keras[0] - 0.01
    np.testing.assert_allclose(estimator, keras, rtol=0, atol=CLOSE)


def _evaluated(tf: Any, make: Callable[[], Any], folder: str, strategy: Any = None) -> tuple[dict, dict]:
    """What evaluations in an Estimator and on the Keras paths report of the same weights, after one step."""
    from tfx_estimator.components.trainer.keras.evaluation import Evaluation
    from tfx_estimator.model_fn.compiled_classifier import CompiledClassifier

    # Of one device, the last batch is another one than that of the others; each replica has one of its own.
    (features, labels), size = _batch(), 8 if strategy else 12

    def batches() -> Any:
        return tf.data.Dataset.from_tensor_slices(({"image": features["image"]}, labels)).batch(size)

    trained = make()
    estimator = _estimator(tf, trained, folder, eval_distribute=strategy)
    estimator.train(lambda: batches().repeat(), steps=1)
    found = estimator.evaluate(batches)
    # Now: a model that becomes an Estimator makes those before it useless.
    own = make()
    own.set_weights([estimator.get_variable_value(each.name.partition(":")[0]) for each in trained.weights])
    model = CompiledClassifier(own, TrainerSection(model="own:model", train_steps=STEPS), CLASSES)
    reader = types.SimpleNamespace(input_fn=lambda mode, context: batches())
    maker, progress = types.SimpleNamespace(make=lambda: model), types.SimpleNamespace(write=lambda *_, **__: None)
    keras = Evaluation(maker, reader, None, None, folder, progress)._measure(None)
    return {name: float(value) for name, value in found.items() if name != "global_step"}, keras


@pytest.mark.parametrize("strategy", ["one_device", "mirrored"])
@pytest.mark.parametrize("reduction", ["auto", "sum"])
def test_the_loss_of_an_evaluation_is_of_each_example_whatever_its_reduction(tf, tmp_path, reduction, strategy):
    loss = functools.partial(tf.keras.losses.SparseCategoricalCrossentropy, from_logits=True, reduction=reduction)
    make = lambda: _compiled(tf, optimizer=tf.keras.optimizers.legacy.SGD(0.001), loss=loss())  # noqa: E731
    distributed = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"]) if strategy == "mirrored" else None
    estimator, keras = _evaluated(tf, make, str(tmp_path), distributed)
    assert estimator["average_loss"] == pytest.approx(keras["average_loss"], rel=1e-5)
    assert 1 < estimator["loss"] < 3
    assert estimator["accuracy"] == pytest.approx(keras["accuracy"])


@pytest.mark.parametrize(
    ("reduction", "regularizer"), [("auto", "l2"), ("sum", None), pytest.param("sum", "l2", marks=pytest.mark.long)]
)
def test_a_loss_trains_alike_whatever_its_reduction(tf, tmp_path, reduction, regularizer):
    loss = functools.partial(tf.keras.losses.SparseCategoricalCrossentropy, from_logits=True, reduction=reduction)
    make = lambda: _compiled(  # noqa: E731
        tf, regularizer=regularizer, optimizer=tf.keras.optimizers.legacy.SGD(0.001), loss=loss()
    )
    keras, estimator = _trained_by_keras(tf, make), _trained_by_an_estimator(tf, make, str(tmp_path))
    np.testing.assert_allclose(estimator, keras, rtol=CLOSE, atol=CLOSE)


def test_a_softmax_that_the_loss_looks_before_trains_alike(tf, tmp_path):
    loss = functools.partial(tf.keras.losses.SparseCategoricalCrossentropy, from_logits=True)
    sgd = functools.partial(tf.keras.optimizers.legacy.SGD, 0.1)
    softmax = lambda hidden: tf.keras.layers.Dense(CLASSES, activation="softmax", name="scores")(hidden)  # noqa: E731
    keras = _trained_by_keras(tf, lambda: _compiled(tf, optimizer=sgd(), loss=loss()))
    estimator = _trained_by_an_estimator(
        tf, lambda: _compiled(tf, softmax, optimizer=sgd(), loss=loss()), str(tmp_path)
    )
    np.testing.assert_allclose(estimator, keras, rtol=CLOSE, atol=CLOSE)


def test_a_loss_of_two_classes_is_refused_of_five(tf):
    model = _compiled(tf, tf.keras.layers.Dense(1, name="one"), optimizer="sgd", loss="binary_crossentropy")
    with pytest.raises(UserCodeError, match=r"binary_crossentropy, which is of two classes .* the data have 5 classes"):
        _estimator(tf, model)


def test_a_loss_of_each_example_is_refused(tf):
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    with pytest.raises(UserCodeError, match="reduction='none', a number for each example"):
        _estimator(tf, _compiled(tf, optimizer="sgd", loss=loss))


def _two_outputs(tf: Any, kind: str, names: str = "ab") -> Callable[[Any], Any]:
    """Of a digit and of another one, of which one number is to come out."""
    first, second = names

    def outputs(hidden: Any) -> Any:
        one = tf.keras.layers.Dense(CLASSES, activation="softmax", name=first)(hidden)
        other = tf.keras.layers.Dense(1 if kind == "column" else CLASSES, activation="softmax", name=second)(hidden)
        return [other, one] if kind == "list" else {"b": other, "a": one}

    return outputs


ONE_LOSS = {"loss": "sparse_categorical_crossentropy"}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        pytest.param("dict", {**ONE_LOSS, "metrics": ["accuracy"]}, marks=pytest.mark.long, id="one loss"),
        pytest.param(
            "list",
            {**ONE_LOSS, "metrics": ["accuracy"], "loss_weights": [0.5, 2.0]},
            marks=pytest.mark.long,
            id="weights",
        ),
        pytest.param(
            "column", {"loss": {"a": ONE_LOSS["loss"], "b": "mse"}, "metrics": {"b": ["mae"]}}, id="a loss each"
        ),
        pytest.param(
            "dict", {**ONE_LOSS, "weighted_metrics": ["accuracy"]}, marks=pytest.mark.long, id="weighted metrics"
        ),
    ],
)
def test_several_outputs_are_trained_and_evaluated_by_the_same_labels(tf, tmp_path, kind, options):
    make = lambda: _compiled(  # noqa: E731
        tf, _two_outputs(tf, kind), optimizer=tf.keras.optimizers.legacy.SGD(0.1), **options
    )
    keras, estimator = _trained_by_keras(tf, make), _trained_by_an_estimator(tf, make, str(tmp_path / "trained"))
    assert keras[-1] < keras[0] - 0.01
    np.testing.assert_allclose(estimator, keras, rtol=0, atol=CLOSE)
    found, expected = _evaluated(tf, make, str(tmp_path / "evaluated"))
    # An Estimator's own is the mean of the batches.
    del found["loss"], expected["loss"]
    assert found == {name: pytest.approx(value, abs=CLOSE) for name, value in expected.items()}


def test_an_output_of_no_loss_whose_variables_nothing_would_train_is_refused(tf):
    model = _compiled(tf, _two_outputs(tf, "dict"), optimizer="sgd", loss={"a": "sparse_categorical_crossentropy"})
    with pytest.raises(UserCodeError, match="variables that its loss does not depend on") as caught:
        _estimator(tf, model)
    assert "b/kernel" in str(caught.value)
    assert "give each output a loss" in str(caught.value)


def test_losses_by_the_keys_of_outputs_whose_layers_are_named_otherwise_are_refused(tf):
    options = {"optimizer": "sgd", "loss": dict.fromkeys("ab", "sparse_categorical_crossentropy")}
    model = _compiled(tf, _two_outputs(tf, "dict", names="xy"), **options)
    with pytest.raises(UserCodeError, match="a dict of outputs, a, b, whose layers are x, y"):
        _estimator(tf, model)


@pytest.mark.parametrize("kind", ["legacy", "new"])
def test_a_schedule_of_the_users_own_is_followed(tf, tmp_path, kind):
    class Halving(tf.keras.optimizers.schedules.LearningRateSchedule):
        def __init__(self, first):
            self.first = first

        def __call__(self, step):
            return self.first * 0.5 ** (tf.cast(step, tf.float32) / 10.0)

        def get_config(self):
            return {"first": self.first}

    class Silent(Halving):
        def get_config(self):
            raise NotImplementedError

    optimizer = f"{'legacy.' if kind == 'legacy' else ''}SGD"
    make = lambda schedule=Halving: _model(tf, optimizer, learning_rate=schedule(0.2))  # noqa: E731
    keras, estimator = _trained_by_keras(tf, make), _trained_by_an_estimator(tf, make, str(tmp_path))
    assert keras[-1] < keras[0] - 0.01
    np.testing.assert_allclose(estimator, keras, rtol=0, atol=CLOSE)
    with pytest.raises(UserCodeError, match="cannot copy the schedule of its learning rate, Silent") as caught:
        _estimator(tf, make(Silent))
    assert "expected: a get_config of Silent" in str(caught.value)


@pytest.mark.parametrize(
    ("optimizer", "told"),
    [
        # Measured: 1e-2 apart in the loss, after 40 steps.
        ("RMSprop", "expected: tf.keras.optimizers.legacy.RMSprop"),
        # 3e-2; and on the Keras paths it counts what it is traced.
        ("Nadam", "expected: tf.keras.optimizers.legacy.Nadam"),
        ("AdamW", "an Estimator cannot have"),
    ],
)
def test_an_optimizer_that_would_train_another_model_is_refused(tf, optimizer, told):
    with pytest.raises(UserCodeError) as caught:
        _estimator(tf, _model(tf, optimizer))
    assert told in str(caught.value)


@pytest.mark.parametrize("method", ["train_step", "test_step", "compute_loss", "compute_metrics"])
def test_a_method_of_the_models_own_that_an_estimator_would_not_call_is_refused(tf, method):
    base = getattr(tf.keras.Model, method)
    kind = type("Own", (tf.keras.Model,), {method: lambda self, *values, **named: base(self, *values, **named)})
    with pytest.raises(UserCodeError, match=f"a {method} of its own, which an Estimator would never call"):
        _estimator(tf, _model(tf, "SGD", kind))


@pytest.mark.parametrize(("again", "context"), [("another", ["ValueError: at first"]), ("at first", [])])
def test_what_a_network_raised_outside_of_the_graph_is_not_lost(caplog, again, context):
    from tfx_estimator.components.trainer.estimator.compiled_model import find_compiled

    said = ["at first", again]

    def network(num_classes: int) -> None:
        raise ValueError(said.pop(0))

    settings = Settings(declaration={"trainer": {"model": "own:network"}}, label_names=("a", "b"))
    with caplog.at_level("DEBUG", "absl.tfx_estimator"):
        first = find_compiled(network, settings, {})
    assert first.model is None
    assert "ValueError: at first" in caplog.text
    with pytest.raises(ValueError, match=again) as caught:
        first.call_again(network, 2, {})
    told = caught.value.__context__
    assert ([f"{type(told).__name__}: {told}"] if told else []) == context


@pytest.mark.parametrize("where", ["alone", "in a Sequential"])
@pytest.mark.parametrize("default", [False, True])
def test_a_layer_that_would_not_be_told_whether_it_is_trained_is_refused(tf, default, where):
    class Own(tf.keras.layers.Layer):
        def call(self, inputs, training=default):
            return inputs

    def outputs(hidden, **given):
        layer = Own(name="own")
        if where != "alone":
            layer = tf.keras.Sequential([tf.keras.Input([16]), layer])
        return tf.keras.layers.Dense(CLASSES)(layer(hidden, **given))

    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    options = {"optimizer": tf.keras.optimizers.legacy.SGD(0.01), "loss": loss}
    with pytest.raises(UserCodeError, match=rf"own \(Own\), whose call has training={default}") as caught:
        _estimator(tf, _compiled(tf, outputs, **options))
    assert "set trainer.path: keras" in str(caught.value)


def test_one_that_is_told_or_asks_keras_is_not(tf):
    class Own(tf.keras.layers.Layer):
        def call(self, inputs, training=False):
            return inputs

    class Asking(Own):
        def call(self, inputs, training=None):
            return tf.keras.layers.Dropout(0.5)(inputs, training=training)

    def outputs(hidden):
        return tf.keras.layers.Dense(CLASSES)(Own()(Asking()(hidden), training=True))

    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = tf.keras.optimizers.legacy.SGD(0.01)
    with tf.keras.utils.custom_object_scope({"Own": Own, "Asking": Asking}):
        assert _estimator(tf, _compiled(tf, outputs, optimizer=optimizer, loss=loss))
