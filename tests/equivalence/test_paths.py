"""The path does not change the results: Estimator, `fit` and the custom loop train equally."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.artifacts import example
from tests.equivalence.conftest import MULTI_WORKER, ONE_DEVICE, Trained, read_losses, regularised
from tests.equivalence.test_resume import lengthened
from tests.equivalence.test_strategies import CENTRAL, STEPS, as_shipped, in_float64
from tests.equivalence.test_strategies import MIRRORED as TWO_DEVICES

pytestmark = [pytest.mark.equivalence, pytest.mark.timeout(300)]

ESTIMATOR: dict[str, Any] = {}
FIT, LOOP = {"path": "keras"}, {"path": "keras_custom_loop"}
PATHS = {"fit": FIT, "loop": LOOP}
# Absolute tolerances. TensorBoard has float32 losses, whose last bit is 1e-7 of a number between 1 and 2.
LOSS = 2.5e-7
FLOAT64, FLOAT32 = 1e-12, 5e-6
# Names in a checkpoint of an Estimator, and in one of Keras, both without the network's name.
RENAMED = {"global_step": "iter"}
# Prefixes of their slots' names.
OPTIMIZERS = ("Adafactor", "Adam", "AdamW", "Momentum", "RMSprop", "SGD")
MIRRORED = "mirrored, reduction_to_one_device"


def assert_equal(estimator: Trained, keras: Trained, loss: float, weights: float) -> None:
    """Compares every step's loss, and every variable of an Estimator's checkpoint except the optimizer's."""
    keras.assert_losses_of(estimator, STEPS, loss)
    # Otherwise untrained weights would be equal as well.
    assert len({loss for _, loss in estimator.losses}) > STEPS // 2
    rates = [dict(read_losses(each.run.uri, ("learning_rate",))) for each in (estimator, keras)]
    assert rates[1] == pytest.approx(rates[0], rel=0, abs=1e-8)
    assert sorted(rates[0]) == estimator.steps
    expected = without_scope(estimator)
    found = {name: value for name, value in keras.weights.items() if name in expected}
    assert sorted(found) == sorted(expected)
    for name, value in expected.items():
        assert value.dtype == found[name].dtype
        np.testing.assert_allclose(found[name], value, rtol=0, atol=weights, err_msg=name)
    assert keras.metric("last_step") == estimator.metric("last_step")
    # An Estimator adds up in float32.
    for metric in ("eval_accuracy", "eval_average_loss"):
        assert keras.metric(metric) == pytest.approx(estimator.metric(metric), abs=1e-6)


def without_scope(trained: Trained) -> dict[str, np.ndarray]:
    """Returns the weights and the step of an Estimator's checkpoint, by their names in Keras."""
    # Each slot of a weight is saved once, for any number of replicas.
    assert not [name for name in trained.weights if "/replica_" in name]
    values = {name: value for name, value in trained.weights.items() if name.partition("/")[0] not in OPTIMIZERS}
    return {RENAMED.get(name, name.partition("/")[2]): value for name, value in values.items()}


@pytest.mark.parametrize(
    ("path", "strategy"),
    [
        pytest.param(path, strategy, marks=[] if (path, strategy) == ("fit", "one_device") else pytest.mark.long)
        for strategy in ("one_device", MIRRORED, "central_storage", "multi_worker_mirrored")
        for path in PATHS
    ],
)
def test_losses_and_weights_equal_those_of_the_estimator(trainings, path, strategy):
    declared = in_float64("mnist_cnn", strategy)
    estimator, keras = trainings.run(declared, {**declared, **PATHS[path]})
    assert_equal(estimator, keras, LOSS, FLOAT64)


@pytest.mark.long
@pytest.mark.parametrize("train", [ONE_DEVICE, TWO_DEVICES, CENTRAL, MULTI_WORKER])
@pytest.mark.parametrize("path", PATHS)
def test_the_unchanged_network_has_the_losses_and_weights_of_the_estimator(trainings, path, train):
    declared = as_shipped(train)
    estimator, keras = trainings.run(declared, {**declared, **PATHS[path]})
    assert_equal(estimator, keras, FLOAT32, FLOAT32)


@pytest.mark.long
@pytest.mark.parametrize("train", [ONE_DEVICE, MULTI_WORKER])
@pytest.mark.parametrize("path", PATHS)
def test_normalisation_and_dropout_equal_those_of_the_estimator(trainings, path, train):
    declared = regularised(train)
    estimator, keras = trainings.run(declared, {**declared, **PATHS[path]})
    assert keras.loss(STEPS) < keras.loss(1) - 0.5
    assert_equal(estimator, keras, LOSS, FLOAT64)


def test_equal_trainings_have_equal_points(trainings):
    declared = {**in_float64("mnist_cnn", "one_device"), "log_every_steps": 25}
    estimator, *others = trainings.run(declared, *({**declared, **path} for path in PATHS.values()))
    assert estimator.steps == [1, 25, 50]
    for keras in others:
        assert dict(keras.losses) == pytest.approx(dict(estimator.losses), rel=0, abs=LOSS)


@pytest.mark.parametrize("path", ["fit", pytest.param("loop", marks=pytest.mark.long)])
def test_arguments_of_a_network_with_the_names_of_options_do_not_change_the_options(trainings, path):
    params = {
        "seed": 7,
        "train_steps": 9,
        "global_batch_size": 1,
        "label_smoothing": 0.9,
        "class_weights": [5.0] * 10,
        "optimizer": {"name": "adam"},
        "precision": "mixed_float16",
        "gradient_accumulation": 4,
        "label_names": ["none"],
    }
    declared = {**in_float64("mnist_cnn", "one_device"), "model": "own_networks:named_like_options", "params": params}
    estimator, keras = trainings.run(declared, {**declared, **PATHS[path]})
    assert_equal(estimator, keras, LOSS, FLOAT64)
    # Arguments of the network.
    assert estimator.weights["net/dense/bias"].shape == (7,)


@pytest.mark.long
@pytest.mark.parametrize("path", ["fit", "loop"])
def test_a_resumed_training_with_single_steps_has_the_bits_of_one_with_large_executions(trainings, tmp_path, path):
    declared = {
        "model": "own_networks:regularised",
        "params": {"dropout": "stateless", "norm": "synchronized"},
        "log_every_steps": 15,
        **PATHS[path],
    }
    half, longer, whole = lengthened(trainings, tmp_path, declared, steps_per_execution=1, log_every_steps=1)
    assert half.steps == list(range(1, STEPS // 2 + 1))
    assert longer.steps == list(range(1, STEPS + 1))
    assert whole.steps == [1, 15, 30, 45, 60]
    assert [longer.loss(step) for step in whole.steps] == [whole.loss(step) for step in whole.steps]


@pytest.mark.parametrize("path", ["fit", pytest.param("loop", marks=pytest.mark.long)])
def test_the_served_model_has_the_names_shapes_and_outputs_of_the_estimator(trainings, images, path):
    declared = in_float64("mnist_cnn", "one_device")
    pixels, labels = images("mnist exact").eval
    records = [example(image=image.tobytes()) for image in pixels]
    files = [tf.io.encode_png(image) for image in pixels]
    inputs = {
        "serving_default": {"examples": tf.constant(records)},
        "images": {"images": tf.constant(pixels)},
        "encoded": {"encoded": tf.stack(files)},
    }
    described, answers = [], []
    for trained in trainings.run(declared, {**declared, **PATHS[path]}):
        served = tf.saved_model.load(str(trained.model / "Format-Serving")).signatures
        described.append(
            {
                name: (_described(each.structured_input_signature[1]), _described(each.structured_outputs))
                for name, each in served.items()
            }
        )
        answers.append({name: served[name](**given) for name, given in inputs.items()})
        for name in ("images", "encoded"):
            for key, value in answers[-1]["serving_default"].items():
                np.testing.assert_array_equal(answers[-1][name][key].numpy(), value.numpy())
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="image 1 of the batch is not a complete PNG or JPEG file"
        ):
            served["encoded"](encoded=tf.stack([files[0], tf.strings.substr(files[1], 0, 60)]))
    assert described[0] == described[1]
    assert sorted(described[0]) == sorted(inputs)
    for name, outputs in answers[0].items():
        for key, value in outputs.items():
            found = answers[1][name][key].numpy()
            if value.dtype.is_floating:
                np.testing.assert_allclose(found, value.numpy(), rtol=0, atol=1e-6)
            else:
                np.testing.assert_array_equal(found, value.numpy())
    assert len(labels) == len(answers[1]["images"]["class_ids"])


def _described(tensors: dict[str, Any]) -> dict[str, tuple[str, list[Any]]]:
    return {name: (each.dtype.name, each.shape.as_list()) for name, each in tensors.items()}
