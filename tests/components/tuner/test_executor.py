"""Tuner's executor, with real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.artifacts import outputs
from tests.components.trainer.conftest import Training, properties_of
from tests.components.trainer.test_module_file import EXPORTER, TRAINER_FN
from tfx_estimator.components.trainer.settings import BUILT_IN_RUN_FN, Settings
from tfx_estimator.components.tuner.component import read_tune
from tfx_estimator.components.tuner.executor import Executor, to_properties

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

RATE = "trainer.optimizer.learning_rate"


class Tuning(Training):
    def run(  # type: ignore[override]
        self, settings: Any, tune: dict[str, Any], steps: int = 60, **function: str
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Executes once; returns the contents of `trials.json` and the best values."""
        self.executions += 1
        kinds = {"best_hyperparameters": "HyperParameters", "tuner_results": "TunerResults"}
        made = outputs(self.root, self.executions, **kinds)
        properties = properties_of(settings, steps, function or {"run_fn": BUILT_IN_RUN_FN})
        Executor().Do(self.inputs, made, {**properties, **to_properties(read_tune(tune))})
        best, results = (Path(made[name][0].uri) for name in kinds)
        best = json.loads((best / "best_hyperparameters.txt").read_text())
        return json.loads((results / "trials.json").read_text()), best

    def logs(self) -> list[str]:
        """Returns the tasks' logs of all trials."""
        return sorted(str(path) for path in self.root.glob("tuning/*/trials/*/training/logs/*.log"))


@pytest.fixture
def tuning(tmp_path: Path, digits: dict[str, list[Any]]) -> Tuning:
    return Tuning(tmp_path / "Tuner", digits)


def test_trials_are_trained_once_and_a_larger_search_continues_from_them(tuning, settings):
    import keras_tuner

    made = settings({"path": "keras"}, path="keras")
    # One of the rates ends in a NaN loss.
    tune = {"max_trials": 1, "train_steps": 20, "ranges": {RATE: [0.05, 900.0]}}
    found, best = tuning.run(made, tune)
    [first] = found["trials"]
    assert (first["status"], first["steps"]) == ("completed", 20)
    assert found["best"] == 1
    assert first["score"] == first["metrics"]["accuracy"] > 0.3
    assert keras_tuner.HyperParameters.from_config(best).values == {RATE: 0.05}
    folder = Path(found["folder"])
    # A trial exports nothing, not even for a moment.
    [log] = tuning.logs()
    assert not list(folder.rglob("saved_model.pb"))
    assert json.loads(next(Path(log).parent.glob("job.json")).read_text())["exports"] is False
    assert "exporting" not in "".join(each.read_text() for each in Path(log).parent.glob("*.progress.jsonl"))
    kept = {path.name.split(".")[0] for path in folder.glob("trials/0001/training/*")}
    assert kept == {"events", "eval", "logs", "declaration"}
    logs = tuning.logs()
    again, _ = tuning.run(made, {**tune, "max_trials": 2})
    assert again["trials"][0] == first
    assert [each["status"] for each in again["trials"]] == ["completed", "failed"]
    assert "the loss" in again["trials"][1]["reason"]
    assert again["best"] == 1
    # The first trial was not trained again.
    assert set(logs) < set(tuning.logs())
    assert all("/0002/" in path for path in set(tuning.logs()) - set(logs))


@pytest.mark.long
def test_a_trainer_fn_in_a_users_own_pipeline_gets_its_values_and_its_checkpoint(tuning, tmp_path):
    file = tmp_path / "own.py"
    text = TRAINER_FN.replace("EXPORTERS", EXPORTER).replace("[32]", "[fn_args.hyperparameters['values']['units']]")
    file.write_text(text)
    tune = {
        "objective": {"metric": "accuracy", "mode": "max"},
        "strategy": "hyperband",
        "max_trials": 4,
        "parallel_trials": 2,
        "hyperband": {"max_steps": 90, "min_steps": 30},
        "ranges": {"units": [2, 64]},
    }
    found, best = tuning.run(Settings(), tune, module_file=str(file))
    assert [(each["status"], each["steps"], each["parent"]) for each in found["trials"][:2]] == [
        ("completed", 30, None),
        ("completed", 30, None),
    ]
    first = {each["values"]["units"]: each for each in found["trials"][:2]}
    assert first[64]["score"] > first[2]["score"]
    longer = [each for each in found["trials"] if each["parent"]]
    assert all(each["steps"] == 90 for each in longer)
    assert best["values"]["units"] == 64
    log = next(path for path in tuning.logs() if "/0001/" in path)
    assert Path(log).read_text()
