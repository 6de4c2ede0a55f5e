"""BaselineFinder finds the baseline among the records of blessings, independently of the service's metadata."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.artifacts import artifact
from tests.folders import write_files
from tfx_estimator.components.baseline_finder.executor import Executor
from tfx_estimator.components.baseline_finder.records import give_baseline, keep_blessed
from tfx_estimator.components.baseline_resolver import write_comparable


class Pipeline:
    """A pipeline's folder and its models; finds baselines there."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "digits"

    def model(self, name: str, dataset: str = "digits") -> Any:
        made = artifact("Model", write_files(self.home / name, {"Format-Serving/saved_model.pb": f"a model {name}"}))
        write_comparable(made, [artifact("Examples", dataset=dataset)], ["probabilities"])
        return made

    def evaluate(self, model: Any, blessed: bool = True, **also: str) -> dict[str, Any]:
        """Records an evaluation as its step does; returns the step's ExecutorInput."""
        blessing = write_files(Path(f"{model.uri}-blessing"), {"BLESSED" if blessed else "NOT_BLESSED": ""})
        comparable = {"comparable": model.get_string_custom_property("comparable"), "rows": 3.0}
        made = {"name": "17", "uri": model.uri, "metadata": comparable, "type": {"instanceSchema": "title: tfx.Model"}}
        executor_input = {
            "inputs": {
                "artifacts": {"model": {"artifacts": [made]}},
                "parameterValues": {"pipeline_home": str(self.home), **also},
            },
            "outputs": {"artifacts": {"blessing": {"artifacts": [{"uri": str(blessing)}]}}},
        }
        keep_blessed(executor_input)
        return executor_input

    def find(self, candidate: Any) -> dict[str, Any]:
        """Returns the baseline that the component passes to the Evaluator; empty without one."""
        found = artifact("String", self.home / "found")
        Executor().Do({"model": [candidate]}, {"found": [found]}, {"pipeline_home": str(self.home)})
        return json.loads(found.read() or "{}")

    def named(self, candidate: Any) -> str:
        return Path(self.find(candidate).get("uri", "/")).name


@pytest.fixture
def pipeline(tmp_path) -> Pipeline:
    return Pipeline(tmp_path)


def test_the_latest_blessed_model_of_the_same_data_is_found(pipeline):
    candidate = pipeline.model("4")
    assert pipeline.find(candidate) == {}
    pipeline.evaluate(pipeline.model("1"))
    pipeline.evaluate(pipeline.model("2"))
    pipeline.evaluate(pipeline.model("3"), blessed=False)
    pipeline.evaluate(pipeline.model("other", dataset="mnist"))
    assert pipeline.named(candidate) == "2"
    assert pipeline.named(pipeline.model("more", dataset="mnist")) == "other"
    assert pipeline.named(pipeline.model("more", dataset="cifar10")) == ""
    # The candidate itself was blessed before and is skipped; a model that is blessed again is the latest.
    assert pipeline.named(pipeline.model("2")) == "1"
    pipeline.evaluate(pipeline.model("1"))
    assert pipeline.named(candidate) == "1"


def _remove(folder: Path) -> None:
    shutil.rmtree(folder)


def _cut(folder: Path) -> None:
    (folder / "Format-Serving" / "saved_model.pb").write_text("a")


@pytest.mark.parametrize("damage", [_remove, _cut])
def test_a_missing_or_incomplete_model_is_skipped(pipeline, damage: Callable[[Path], None]):
    for name in ("1", "2"):
        pipeline.evaluate(pipeline.model(name))
    damage(pipeline.home / "2")
    candidate = pipeline.model("3")
    assert pipeline.named(candidate) == "1"
    damage(pipeline.home / "1")
    assert pipeline.find(candidate) == {}


def test_the_model_is_found_after_its_folder_was_moved(pipeline, tmp_path):
    pipeline.evaluate(pipeline.model("1"))
    pipeline.home.rename(tmp_path / "moved")
    # Another model of the same name lies in the old folder.
    pipeline.model("1")
    pipeline.home = tmp_path / "moved"
    assert pipeline.find(pipeline.model("2"))["uri"] == str(tmp_path / "moved" / "1")


def test_concurrent_evaluations_each_leave_a_record(pipeline):
    models = [pipeline.model(str(number)) for number in range(32)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(pipeline.evaluate, models))
    kept = [json.loads(path.read_text())["uri"] for path in (pipeline.home / "blessed").iterdir()]
    assert sorted(kept, key=int) == [str(number) for number in range(32)]


def test_the_found_baseline_becomes_an_input_of_the_evaluator(pipeline):
    pipeline.evaluate(pipeline.model("1"))
    candidate = pipeline.model("2")
    found = pipeline.find(candidate)
    executor_input = pipeline.evaluate(candidate, found_baseline=json.dumps(found))
    give_baseline(executor_input)
    (given,) = executor_input["inputs"]["artifacts"]["baseline_model"]["artifacts"]
    # Under its own artifact name, since the blessing refers to the service's metadata.
    assert (given["name"], given["uri"]) == ("17", str(pipeline.home / "1"))
    assert given["type"] == executor_input["inputs"]["artifacts"]["model"]["artifacts"][0]["type"]
    assert given["metadata"]["comparable"] == candidate.get_string_custom_property("comparable")
    executor_input = pipeline.evaluate(candidate, found_baseline="")
    give_baseline(executor_input)
    assert "baseline_model" not in executor_input["inputs"]["artifacts"]
