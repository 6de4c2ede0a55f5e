"""Trainings that begin with the weights of another one, on every path, from everything that a training leaves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.components.trainer.conftest import SHAPE, Training
from tests.equivalence.conftest import read_weights
from tfx_estimator.components.trainer.settings import Settings, built_in_function
from tfx_estimator.pipeline.errors import UserCodeError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

# The rate is 0 from the first step on: what comes out is what went in.
STILL = {"name": "momentum", "schedule": "piecewise", "boundaries": [1], "values": [0, 0]}
MIRRORED = {"train": {"strategy": "mirrored", "devices": {"cpu": 2}}}
PATHS = ("estimator", "keras", "keras_custom_loop")
LABELS = tuple("0123456789")


class Warm:
    """Trains once by each path, and begins other trainings with what came of it."""

    def __init__(self, training: Training, declaration) -> None:
        self.training = training
        self.declaration = declaration
        self._first: dict[str, tuple[Path, str]] = {}

    def train(self, labels=LABELS, **trainer) -> tuple[Path, str]:
        """Returns the model's folder and that of the run."""
        declared = {"model": "mnist_cnn", "train_steps": 2, **trainer}
        settings = Settings(
            declaration=self.declaration(**declared),
            image_shape=SHAPE,
            label_names=labels,
            path=declared.get("path", "estimator"),
        )
        model, run = self.training.run(settings, declared["train_steps"], **built_in_function(settings.trainer))
        return model, run.uri

    def first(self, path: str) -> tuple[Path, str]:
        """The training that others begin with."""
        if path not in self._first:
            self._first[path] = self.train(path=path)
        return self._first[path]


@pytest.fixture(scope="module")
def warm(tmp_path_factory, digits, declaration) -> Warm:
    """Trainings of this module."""
    return Warm(Training(tmp_path_factory.mktemp("Trainer"), digits), declaration)


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray], *but: str) -> None:
    """Asserts that the trained weights of two checkpoints are equal, but for some."""
    one, other = _by_layer(one), _by_layer(other)
    assert len(one) > 1
    for name in one:
        equal = one[name].shape == other[name].shape and np.array_equal(one[name], other[name])
        assert equal is (name not in but), name


def _by_layer(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The trained ones, without the name that an Estimator's graph puts in front."""
    short = {"/".join(name.split("/")[-2:]): value for name, value in weights.items()}
    return {name: value for name, value in short.items() if name.endswith(("/kernel", "/bias", "/gamma", "/beta"))}


@pytest.mark.long
def test_keras_begins_with_an_estimators_checkpoint_and_an_estimator_with_a_model_of_keras(warm, caplog):
    caplog.set_level("INFO", "absl.tfx_estimator")
    _, run = warm.first("estimator")
    before = read_weights(run)
    model, other = warm.train(path="keras", optimizer=STILL, warm_start={"checkpoint": run}, distribution=MIRRORED)
    same(before, read_weights(other))
    assert "training begins with 6 of 6 variables" in caplog.text
    assert "left out" not in caplog.text
    # Another head, and a layer that begins anew.
    caplog.clear()
    anew = {"model": str(model), "exclude": ["conv1/*"]}
    _, third = warm.train((*LABELS, "ten"), optimizer=STILL, warm_start=anew, seed=7, distribution=MIRRORED)
    found = read_weights(third)
    same(before, found, "conv1/kernel", "conv1/bias", "logits/kernel", "logits/bias")
    assert "training begins with 2 of 6 variables" in caplog.text
    assert "logits/bias, which is [11] here and [10] there" in caplog.text
    assert "conv1/kernel, by trainer.warm_start.exclude" in caplog.text
    assert found["global_step"] == 2


@pytest.mark.long
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("strategy", ["one_device", "multi_worker_mirrored:2", "parameter_server:2"])
def test_every_path_begins_with_what_every_other_left(warm, path, strategy, caplog):
    caplog.set_level("INFO", "absl.tfx_estimator")
    for other in PATHS:
        model, run = warm.first(other)
        for start in ({"checkpoint": run}, {"model": str(model)}):
            distribution = {"train": strategy, "max_restarts": 0}
            _, begun = warm.train(path=path, optimizer=STILL, seed=9, warm_start=start, distribution=distribution)
            same(read_weights(run), read_weights(begun))


@pytest.mark.long
@pytest.mark.parametrize("path", PATHS)
def test_a_training_that_goes_on_begins_with_nothing(warm, path, caplog):
    caplog.set_level("INFO", "absl.tfx_estimator")
    _, run = warm.first("keras")
    start = {"path": path, "seed": 11, "warm_start": {"checkpoint": run}}
    warm.train(**start, optimizer={"schedule": "constant"})
    assert caplog.text.count("training begins with") == 1
    warm.train(**start, optimizer={"schedule": "constant"}, train_steps=4)
    assert caplog.text.count("training begins with") == 1
    assert "goes on from there, to 4" in caplog.text


@pytest.mark.long
@pytest.mark.parametrize("path", PATHS)
def test_the_base_model_of_a_pipeline_is_what_training_begins_with(warm, path):
    from tfx.types import standard_artifacts

    model, run = warm.first("keras")
    base = standard_artifacts.Model()
    base.uri = str(model)
    inputs = warm.training.inputs
    warm.training.inputs = {**inputs, "base_model": [base]}
    try:
        _, begun = warm.train(path=path, optimizer=STILL, seed=13)
    finally:
        warm.training.inputs = inputs
    same(read_weights(run), read_weights(begun))


MODEL_FN = """
import tensorflow as tf

def model_fn(features, labels, mode, params):
    images = tf.reshape(features["image"], [-1, 784])
    hidden = tf.compat.v1.layers.dense(images, 8, name="hidden")
    hidden = tf.compat.v1.layers.batch_normalization(hidden, name="norm", training=mode == "train")
    logits = tf.compat.v1.layers.dense(hidden, params["num_classes"], name="scores")
    outputs = {"probabilities": tf.nn.softmax(logits)}
    if mode == "infer":
        return tf.estimator.EstimatorSpec(mode, predictions=outputs, export_outputs={
            "serving_default": tf.estimator.export.PredictOutput(outputs)})
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    step = tf.compat.v1.train.get_global_step()
    train_op = tf.compat.v1.train.AdamOptimizer(params.get("rate", 0.1)).minimize(loss, step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)
"""


@pytest.mark.long
def test_a_model_fn_of_ones_own_begins_with_weights_and_without_slots(warm, tmp_path, monkeypatch):
    (tmp_path / "warm_model.py").write_text(MODEL_FN)
    monkeypatch.syspath_prepend(str(tmp_path))
    own = {"model": "warm_model:model_fn"}
    _, run = warm.train(**own, params={"rate": 0.1})
    _, begun = warm.train(**own, params={"rate": 0.0}, seed=5, warm_start={"checkpoint": run})
    one, other = read_weights(run), read_weights(begun)
    same(one, other)
    # Two steps on from 0, and not from 2.
    np.testing.assert_allclose(other["beta1_power"], 0.9**3, rtol=1e-5)


def test_weights_that_fit_nothing_are_refused_with_the_names_of_both(tmp_path):
    import tensorflow as tf

    from tfx_estimator.model_fn.warm_start import match

    model = tf.keras.Sequential([tf.keras.layers.Dense(2, name="there")])
    model.build((None, 3))
    prefix = tf.train.Checkpoint(model=model).save(str(tmp_path / "model.ckpt"))
    with pytest.raises(UserCodeError) as caught:
        match(prefix, {"here/kernel": [3, 2], "other/kernel": [3, 2]}, ["other/*"])
    assert "the model has here/kernel" in str(caught.value)
    assert "see what is there: save_counter, there/bias, there/kernel;" in str(caught.value)
    matched = match(prefix, {"there/kernel": [3, 2], "there/bias": [5]}, [])
    assert list(matched.keys) == ["there/kernel"]
    assert matched.left == "there/bias, which is [5] here and [2] there"


def test_the_averages_of_a_normalisation_come_too(tmp_path):
    import tensorflow as tf

    from tfx_estimator.model_fn.warm_start import warm_keras

    def network(value: float) -> tf.keras.Model:
        model = tf.keras.Sequential([tf.keras.layers.BatchNormalization(name="norm")])
        model.build((None, 3))
        model.layers[0].moving_mean.assign([value] * 3)
        return model

    prefix = tf.train.Checkpoint(model=network(5.0)).save(str(tmp_path / "model.ckpt"))
    begun = network(0.0)
    warm_keras(begun, prefix, ())
    assert begun.layers[0].moving_mean.numpy().tolist() == [5, 5, 5]


def test_variables_of_one_name_are_left_out_and_told(tmp_path):
    import tensorflow as tf

    from tfx_estimator.model_fn.warm_start import warm_keras

    def towers(value: float) -> tf.keras.Model:
        def tower(name: str) -> tf.keras.Model:
            return tf.keras.Sequential([tf.keras.layers.Dense(2, name="hidden", use_bias=False)], name=name)

        image = tf.keras.Input([3])
        joined = tower("left")(image) + tower("right")(image)
        model = tf.keras.Model(image, tf.keras.layers.Dense(2, name="head", use_bias=False)(joined))
        model.set_weights([weight * 0 + value for weight in model.get_weights()])
        return model

    prefix = tf.train.Checkpoint(model=towers(5.0)).save(str(tmp_path / "model.ckpt"))
    begun = towers(0.0)
    matched = warm_keras(begun, prefix, ())
    assert [float(weight.numpy()[0, 0]) for weight in begun.weights] == [0, 0, 5]
    assert matched.said.startswith("training begins with 1 of 3 variables")
    assert matched.left == "hidden/kernel, as 2 variables of the model are called"
