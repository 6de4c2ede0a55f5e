"""Tuner's executor, with real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.components.trainer.conftest import declaration, digits, settings  # noqa: F401
from tfx_estimator.components.trainer.protocol.job import BUILT_IN_RUN_FN
from tfx_estimator.components.tuner.argument import read_tune, to_properties

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

RATE = "trainer.optimizer.learning_rate"


class Tuning:
    """Calls the executor as TFX does, execution after execution."""

    def __init__(self, root: Path, inputs: dict[str, list[Any]]) -> None:
        self.root = root
        self.inputs = inputs
        self.executions = 0

    def run(
        self,
        settings: Any,  # noqa: F811
        tune: dict[str, Any],
        steps: int = 60,
        **function: str,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Executes once; returns what is in `trials.json`, and the best values."""
        from tfx.types import standard_artifacts

        from tfx_estimator.components.tuner.executor import Executor

        self.executions += 1
        outputs = {
            "best_hyperparameters": standard_artifacts.HyperParameters(),
            "tuner_results": standard_artifacts.TunerResults(),
        }
        for name, artifact in outputs.items():
            artifact.uri = str(self.root / name / str(self.executions))
        properties = {
            "train_args": json.dumps({"num_steps": steps}),
            "eval_args": "{}",
            "custom_config": "null",
            **settings.to_properties(),
            **to_properties(read_tune(tune)),
            **(function or {"run_fn": BUILT_IN_RUN_FN}),
        }
        Executor().Do(self.inputs, {name: [artifact] for name, artifact in outputs.items()}, properties)
        best = json.loads((Path(outputs["best_hyperparameters"].uri) / "best_hyperparameters.txt").read_text())
        return json.loads((Path(outputs["tuner_results"].uri) / "trials.json").read_text()), best

    def logs(self) -> list[str]:
        """The tasks' logs of all trials."""
        return sorted(str(path) for path in self.root.glob("tuning/*/trials/*/training/logs/*.log"))


@pytest.fixture
def tuning(tmp_path: Path, digits: dict[str, list[Any]]) -> Tuning:  # noqa: F811
    return Tuning(tmp_path / "Tuner", digits)


def test_trials_are_trained_once_and_more_of_them_go_on_from_there(tuning, settings):  # noqa: F811
    import keras_tuner

    made = settings({"path": "keras"}, path="keras")
    # One of the rates ends in a loss that is no number.
    tune = {"max_trials": 1, "train_steps": 20, "ranges": {RATE: [0.05, 900.0]}}
    found, best = tuning.run(made, tune)
    [first] = found["trials"]
    assert (first["status"], first["steps"]) == ("completed", 20)
    assert found["best"] == 1
    assert first["score"] == first["metrics"]["accuracy"] > 0.3
    assert keras_tuner.HyperParameters.from_config(best).values == {RATE: 0.05}
    folder = Path(found["folder"])
    kept = {path.name.split(".")[0] for path in folder.glob("trials/0001/training/*")}
    assert kept == {"events", "eval", "logs", "declaration"}
    logs = tuning.logs()
    again, _ = tuning.run(made, {**tune, "max_trials": 2})
    assert again["trials"][0] == first
    assert [each["status"] for each in again["trials"]] == ["completed", "failed"]
    assert "the loss" in again["trials"][1]["reason"]
    assert again["best"] == 1
    # The first was not trained again.
    assert set(logs) < set(tuning.logs())
    assert all("/0002/" in path for path in set(tuning.logs()) - set(logs))
