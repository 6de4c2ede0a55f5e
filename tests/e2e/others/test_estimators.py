"""Users' Estimators: every strategy trains them with the losses of plain tf.estimator, or refuses them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.artifacts import artifact, example, write_records
from tests.components.trainer.conftest import Training
from tests.equivalence.conftest import read_losses, read_weights
from tests.root import run_python
from tfx_estimator.components.trainer.settings import Settings

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

HERE = Path(__file__).resolve().parent
STEPS = 10
# Absolute tolerance, in float32.
LOSS, WEIGHT = 1e-5, 1e-5
MIRRORED = {"strategy": "mirrored", "devices": {"cpu": 2}}
WORKERS = {"strategy": "multi_worker_mirrored", "workers": 2}
STRATEGIES: dict[str, dict[str, Any]] = {
    "one_device": {},
    "mirrored": {"train": MIRRORED},
    "workers": {"train": WORKERS},
}
# Name -> number of equal parts of a batch. A replica normalises by the statistics of its part: losses, weights and
# moving averages equal those of one device if all parts have the statistics of the whole batch.
EQUAL = {
    "classic": 1,
    "normalised": 2,
    "head1": 1,
    "head1_mean": 1,
    "head2": 1,
    "head2_minimize": 1,
    "model_to_estimator": 1,
}


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Digits as transformed tf.Examples."""
    from sklearn.datasets import load_digits

    folder = tmp_path_factory.mktemp("examples")
    data = load_digits()
    for split, part in (("train", slice(200, 1000)), ("eval", slice(200))):
        (folder / f"Split-{split}").mkdir()
        pairs = zip((data.data[part] / 16).tolist(), data.target[part].tolist())
        records = (example(x=pixels, label=label) for pixels, label in pairs)
        write_records(folder / f"Split-{split}" / "data-00000-of-00001", records)
    made = artifact("Examples", folder)
    made.split_names = json.dumps(["train", "eval"])
    return made


Plain = dict[str, tuple[dict[int, float], dict[str, np.ndarray]]]


@pytest.fixture(scope="module")
def plain(examples: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Plain]:
    """Trains by plain tf.estimator: losses of all steps and variables, by name."""

    def train(*names: str) -> Plain:
        root = tmp_path_factory.mktemp("plain")
        named = [f"{name}:{EQUAL[name]}" for name in names]
        program = [str(HERE / "plain_digits.py"), examples.uri, str(root), str(STEPS), *named]
        run_python("-m", "tfx_estimator.estimator", *program, cwd=root, code=0)
        return {name: (dict(read_losses(f"{root}/{name}")), read_weights(f"{root}/{name}")) for name in names}

    return train


@pytest.fixture(scope="module")
def all_plain(plain: Callable[..., Plain]) -> Plain:
    return plain(*EQUAL)


@pytest.fixture
def train(examples: Any, tmp_path: Path) -> Callable[..., Any]:
    """Trains by the executor; returns the model_run artifact."""

    def run(name: str, distribution: dict[str, Any], steps: int = STEPS, parts: int = 0) -> Any:
        config = json.dumps({"model": name, "parts": parts or EQUAL.get(name, 1)})
        functions = {"module_file": str(HERE / "modules" / "digit_models.py"), "custom_config": config}
        settings = Settings(arguments={"distribution": {**distribution, "max_restarts": 0}})
        _, model_run = Training(tmp_path / "Trainer", {"examples": [examples]}).run(settings, steps, **functions)
        return model_run

    return run


def _compare(model_run: Any, losses: dict[int, float], weights: dict[str, np.ndarray]) -> None:
    folder = f"{model_run.uri}/Format-Serving"
    other = read_weights(folder)
    assert sorted(other) == sorted(weights)
    for name, value in weights.items():
        if not name.startswith("_"):
            np.testing.assert_allclose(other[name], value, rtol=0, atol=WEIGHT, err_msg=name)
    assert model_run.get_float_custom_property("last_step") == STEPS
    if losses:
        found = dict(read_losses(folder))
        assert sorted(found) == sorted(losses) == list(range(1, STEPS + 1))
        np.testing.assert_allclose([found[step] for step in losses], list(losses.values()), rtol=0, atol=LOSS)
        assert len(set(losses.values())) == STEPS


@pytest.mark.long
def test_a_keras_estimator_trains_and_resumes_under_replicas(plain, train):
    losses, weights = plain("model_to_estimator")["model_to_estimator"]
    # The layers have the names of the first call, whatever the check built before.
    _compare(train("model_to_estimator", STRATEGIES["mirrored"]), losses, weights)
    longer = train("model_to_estimator", STRATEGIES["mirrored"], steps=2 * STEPS)
    assert [longer.get_float_custom_property(f"{which}_step") for which in ("first", "last")] == [STEPS, 2 * STEPS]
    verdict = json.loads((Path(longer.uri) / "replica_check.json").read_text())
    assert verdict.keys() == {"notes", "batch"}
    assert verdict["notes"] == []
    assert verdict["batch"].startswith("global batch 32: 2 replicas share each batch of TrainSpec.input_fn")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", EQUAL)
def test_losses_and_weights_equal_those_of_plain_tf_estimator(all_plain, train, name, strategy):
    losses, weights = all_plain[name]
    # Under replicas, a head reports the loss of the first replica's examples.
    shown = strategy == "one_device" or not name.startswith("head")
    _compare(train(name, STRATEGIES[strategy]), losses if shown else {}, weights)
