"""Layers on several devices, and stages on parts of a batch, train like the whole network."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.equivalence.conftest import ONE_DEVICE, assert_alike, flat_weights
from tests.equivalence.test_strategies import STEPS, as_shipped
from tests.equivalence.train_parallel import CASES, PATHS

pytestmark = [pytest.mark.equivalence, pytest.mark.timeout(300)]

# Absolute tolerances: in float64, with Adam's division by small numbers; and in float32.
FLOAT64 = {"layers": 1e-12, "branches": 1e-9, "stages": 1e-12, "three stages": 1e-9}
FLOAT32 = 5e-6
ALWAYS = ("stages.estimator", "stages.keras")
# Devices of the layers with variables.
PLACES = {
    "layers": {"conv": "CPU:0", "dense": "CPU:1", "logits": "CPU:1"},
    "branches": {"left": "CPU:1", "right_dense": "CPU:0", "logits": "CPU:0"},
    "stages": {"conv": "CPU:0", "dense": "CPU:1", "logits": "CPU:1"},
    "three stages": {"conv": "CPU:2", "dense": "CPU:1", "logits": "CPU:1"},
}
FORWARD = re.compile(r"/(\w+)(?<!_grad)/(?:Conv2D|MatMul|BiasAdd)$")
BACK = re.compile(r"/(\w+)/(?:Conv2D|MatMul|BiasAdd)_grad/(?:Conv2DBackpropFilter|MatMul(?:_1)?|BiasAddGrad)$")
# Updates in an Estimator's graph, and by Keras's optimizer; the former is `update_` and the variable's full name.
UPDATE = re.compile(r"/(?:update_)?(\w+)/(?:kernel|bias)/ResourceApply\w+$")
STATE = re.compile(r"(?:^|[/ ])(\w+)/(?:kernel|bias)(?:/Adam_[mv]|(?:/[mv])?:0)?$")


@pytest.fixture(scope="module")
def trained(apart) -> Callable[[str], Path]:
    """Returns the results' folder of a case on a path; one process trains the cases that always run."""
    return lambda name: apart("train_parallel", *(ALWAYS if name in ALWAYS else [name]))


EACH = [
    pytest.param(case, path, marks=() if f"{case}.{path}" in ALWAYS else pytest.mark.long)
    for case in CASES
    for path in PATHS
]


@pytest.mark.parametrize(("case", "path"), EACH)
def test_weights_equal_those_of_the_whole_network(trained, case, path):
    folder = trained(f"{case}.{path}")
    whole, divided = flat_weights(folder / f"{case}.npz"), flat_weights(folder / f"{case}.{path}.npz")
    np.testing.assert_allclose(divided, whole, rtol=0, atol=FLOAT64[case])


@pytest.mark.parametrize(("case", "path"), EACH)
def test_variables_forward_and_gradients_of_a_layer_are_on_its_device(trained, case, path):
    ran = json.loads((trained(f"{case}.{path}") / f"{case}.{path}.json").read_text())
    # A tf.function's variables are its arguments, changed on their devices.
    for kind in (FORWARD, BACK, STATE, *((UPDATE,) if path == "estimator" else ())):
        found = {(match[1], device) for device, names in ran.items() for name in names if (match := kind.search(name))}
        assert found == set(PLACES[case].items()), kind.pattern


def divided(path: str, **parallel: object) -> dict:
    """Returns the declared trainer of `mnist_cnn`, on two devices."""
    return {**as_shipped(ONE_DEVICE), "path": path, **parallel}


MODEL = {"model_parallel": {"devices": ["cpu:0", "cpu:1"], "layers": {"dense*": 1, "logits": 1}}}
PIPELINE = {"pipeline_parallel": {"stages": 2, "microbatches": 4}}


@pytest.mark.long
@pytest.mark.parametrize("path", ["estimator", "keras", "keras_custom_loop"])
@pytest.mark.parametrize("parallel", [MODEL, PIPELINE], ids=["layers", "stages"])
def test_the_unchanged_network_has_the_losses_weights_and_metrics_of_the_whole(trainings, path, parallel):
    whole, parts = trainings.run(as_shipped(ONE_DEVICE), divided(path, **parallel))
    assert_alike(whole, parts, STEPS, FLOAT32)
    # An Estimator's `loss` of an evaluation is a mean of batch means, here of 403 examples in batches of 100.
    for name in ("eval_accuracy", "eval_average_loss"):
        assert parts.metric(name) == pytest.approx(whole.metric(name), abs=FLOAT32)
