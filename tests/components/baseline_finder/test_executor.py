"""The model to compare with is found among the records that blessings have left, whatever the service says of it."""

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

pytestmark = pytest.mark.unit


class Pipeline:
    """The folder of a pipeline, its models and what is found there."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "digits"

    def model(self, name: str, dataset: str = "digits") -> Any:
        made = artifact("Model", write_files(self.home / name, {"Format-Serving/saved_model.pb": f"a model {name}"}))
        write_comparable(made, [artifact("Examples", dataset=dataset)], ["probabilities"])
        return made

    def evaluate(self, model: Any, blessed: bool = True, **also: str) -> dict[str, Any]:
        """Leaves what a step leaves that has evaluated a model; returns what it was told."""
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
        """Returns what the component tells the Evaluator; nothing where it has found no model."""
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
    # The candidate, which was blessed before, is not compared with itself; what is blessed again is the latest.
    assert pipeline.named(pipeline.model("2")) == "1"
    pipeline.evaluate(pipeline.model("1"))
    assert pipeline.named(candidate) == "1"


def _remove(folder: Path) -> None:
    shutil.rmtree(folder)


def _cut(folder: Path) -> None:
    (folder / "Format-Serving" / "saved_model.pb").write_text("a")


@pytest.mark.parametrize("damage", [_remove, _cut])
def test_a_model_that_is_gone_or_not_whole_is_passed_over(pipeline, damage: Callable[[Path], None]):
    for name in ("1", "2"):
        pipeline.evaluate(pipeline.model(name))
    damage(pipeline.home / "2")
    candidate = pipeline.model("3")
    assert pipeline.named(candidate) == "1"
    damage(pipeline.home / "1")
    assert pipeline.find(candidate) == {}


def test_in_a_folder_that_was_moved_the_model_is_looked_for_where_it_lies_now(pipeline, tmp_path):
    pipeline.evaluate(pipeline.model("1"))
    pipeline.home.rename(tmp_path / "moved")
    # At the former place there is another of the same name.
    pipeline.model("1")
    pipeline.home = tmp_path / "moved"
    assert pipeline.find(pipeline.model("2"))["uri"] == str(tmp_path / "moved" / "1")


def test_evaluations_at_the_same_time_each_leave_a_record(pipeline):
    models = [pipeline.model(str(number)) for number in range(32)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(pipeline.evaluate, models))
    kept = [json.loads(path.read_text())["uri"] for path in (pipeline.home / "blessed").iterdir()]
    assert sorted(kept, key=int) == [str(number) for number in range(32)]


def test_what_was_found_becomes_an_input_of_the_evaluator(pipeline):
    pipeline.evaluate(pipeline.model("1"))
    candidate = pipeline.model("2")
    found = pipeline.find(candidate)
    executor_input = pipeline.evaluate(candidate, found_baseline=json.dumps(found))
    give_baseline(executor_input)
    (given,) = executor_input["inputs"]["artifacts"]["baseline_model"]["artifacts"]
    # By its own name: what the blessing says of it is true of the service's metadata.
    assert (given["name"], given["uri"]) == ("17", str(pipeline.home / "1"))
    assert given["type"] == executor_input["inputs"]["artifacts"]["model"]["artifacts"][0]["type"]
    assert given["metadata"]["comparable"] == candidate.get_string_custom_property("comparable")
    executor_input = pipeline.evaluate(candidate, found_baseline="")
    give_baseline(executor_input)
    assert "baseline_model" not in executor_input["inputs"]["artifacts"]
