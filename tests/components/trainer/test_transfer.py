"""Transfer learning: a Keras application's own file of weights, and frozen variables, on every path."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.components.trainer.user import transfers, weights_given
from tests.equivalence.conftest import read_weights

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

MIRRORED = {"train": {"strategy": "mirrored", "devices": {"cpu": 2}}}
MOMENTUM = {"name": "momentum", "learning_rate": 0.01, "schedule": "constant", "weight_decay": 0.01}
BASE = "mobilenetv2_0.35_32"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The application's weights in each form that Keras writes, and their values by name."""
    tf.keras.utils.set_random_seed(5)
    model, folder = transfers.base(), tmp_path_factory.mktemp("weights")
    random = np.random.default_rng(1)
    for each in model.weights:
        if not each.name.endswith("kernel:0"):
            each.assign(random.uniform(0.5, 1.5, each.shape))
    found = {"v3": "base.weights.h5", "v2": "base_notop.h5", "archive": "base.keras", "checkpoint": "checkpoint"}
    for name in found.values():
        (model.save if name.endswith(".keras") else model.save_weights)(str(folder / name))
    values = {each.name.partition(":")[0]: each.numpy() for each in model.weights}
    return {form: str(folder / name) for form, name in found.items()}, values


@pytest.fixture
def weights(train):
    """Trains; returns the variables by the ends of their names."""

    def run(model: str, path: str, steps: int = 2, **section: Any) -> dict[str, np.ndarray]:
        section = {"optimizer": MOMENTUM, "global_batch_size": 16, "eval_steps": 1, **section}
        _, run = train(path, steps, model=model, **section)
        return {"/".join(name.split("/")[-2:]): value for name, value in read_weights(run.uri).items()}

    return run


def unmoved(found: dict[str, np.ndarray], given: dict[str, np.ndarray]) -> set[str]:
    """Returns the names of the variables that are equal to the bit."""
    assert given.keys() <= found.keys()
    return {name for name, value in given.items() if np.array_equal(found[name], value)}


SMALL = {"model": "weights_given:network", "params": {"way": "none", "frozen": False}, "freeze": ["base"]}


@pytest.mark.parametrize(
    ("path", "strategy"),
    [
        ("keras", MIRRORED),
        ("estimator", MIRRORED),
        ("keras_custom_loop", {}),
        pytest.param("keras", {"train": "multi_worker_mirrored:2"}, marks=pytest.mark.long),
        pytest.param("estimator", {"train": "multi_worker_mirrored:2"}, marks=pytest.mark.long),
        pytest.param("estimator", {"train": "parameter_server:2"}, marks=pytest.mark.long),
    ],
)
def test_a_frozen_part_stays_as_its_file_is_under_a_strategy(weights, tmp_path, path, strategy):
    weights_given.write(str(tmp_path))
    start = {"weights": str(tmp_path / "base.weights.h5")}
    found = weights(path=path, warm_start=start, distribution={**strategy, "max_restarts": 0}, **SMALL)
    given = weights_given.weights()
    assert unmoved(found, given) == given.keys()
    assert np.abs(found["logits/kernel"] - 1).max() > 0


def test_a_part_that_its_function_loads_stays_as_loaded(weights, tmp_path):
    weights_given.write(str(tmp_path))
    params = {"way": "file", "frozen": False, "folder": str(tmp_path)}
    found = weights(path="estimator", **{**SMALL, "params": params})
    given = weights_given.weights()
    assert unmoved(found, given) == given.keys()
    assert np.abs(found["logits/kernel"] - 1).max() > 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("path", "model", "form"),
    [
        ("keras", "network", "v3"),
        ("estimator", "network", "v2"),
        ("estimator", "model_fn", "v3"),
        ("keras_custom_loop", "network", "v2"),
        ("keras", "compiled", "archive"),
        ("estimator", "network", "v3"),
        ("estimator", "model_fn", "v2"),
    ],
)
def test_a_frozen_application_stays_as_its_file_is_and_the_head_trains(weights, files, caplog, path, model, form):
    caplog.set_level("INFO", "absl.tfx_estimator")
    paths, given = files
    found = weights(f"transfers:{model}", path, warm_start={"weights": paths[form]}, freeze=[BASE])
    # Also the averages of its normalisations.
    assert unmoved(found, given) == given.keys()
    assert np.abs(found["head/bias"]).max() > 0
    assert (
        f"training begins with {len(given)} of {len(given) + (4 if model == 'model_fn' else 2)} variables"
        in caplog.text
    )
    assert "head/bias, which is not there" in caplog.text
    trained = sum("moving" not in name for name in given)
    assert (
        f"trainer.freeze: {trained} of {trained + (4 if model == 'model_fn' else 2)} variables are not" in caplog.text
    )
