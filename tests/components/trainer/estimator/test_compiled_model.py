"""A compiled model in an Estimator: trained as on the Keras paths, or refused."""

from __future__ import annotations

import functools
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
    tf.keras.utils.set_random_seed(1)
    image = tf.keras.Input([FEATURES], name="image")
    hidden = tf.keras.layers.Dense(16, activation="relu")(image)
    model = (kind or tf.keras.Model)(image, tf.keras.layers.Dense(CLASSES)(hidden))
    make = functools.reduce(getattr, optimizer.split("."), tf.keras.optimizers)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(make(**{"learning_rate": 0.01, **options}), loss)
    return model


def _estimator(tf: Any, model: Any, folder: str = "") -> Any:
    from tfx_estimator.components.trainer.estimator.compiled_model import make_estimator

    settings = Settings(
        declaration={"trainer": {"model": "own:model", "train_steps": STEPS}}, label_names=tuple("abcde")
    )
    return make_estimator(model, settings, tf.estimator.RunConfig(folder or None))


def _trained_by_an_estimator(tf: Any, make: Callable[[], Any], folder: str) -> list[float]:
    class Losses(tf.estimator.SessionRunHook):
        """Keeps each step's."""

        def __init__(self):
            self.seen = []

        def before_run(self, run_context):
            return tf.estimator.SessionRunArgs(tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.LOSSES)[0])

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
