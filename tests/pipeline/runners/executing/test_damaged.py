"""A compiled file that was damaged, or written by someone else, is refused before anything of it is started."""

from __future__ import annotations

import copy
import functools
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import pytest
import yaml

from tfx_estimator.__main__ import main
from tfx_estimator.pipeline.base.errors import DeclarationError, TfxEstimatorError
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.runners import entry
from tfx_estimator.pipeline.runners.executing import container
from tfx_estimator.pipeline.runners.executing.execution import Execution, bring_modules, rebased
from tfx_estimator.pipeline.runners.executing.job import read_job
from tfx_estimator.pipeline.runners.listener import NodeRun
from tfx_estimator.pipeline.user_source.pack import Packed

pytestmark = pytest.mark.unit

GOLDEN = Path(__file__).parents[3] / "golden" / "compiled"
ORIGINALS = ("digits.vertex.json", "digits.kubeflow_v2.yaml", "mnist.vertex.json")
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    7,
    -1,
    0.5,
    10**30,
    float("nan"),
    "",
    "many",
    "..",
    "../../../outside",
    "/tmp/outside",
    "a/b",
    "x" * 300,
    "nul\0",
    "\ud800",
    "{{$.inputs.parameters['nothing']}}",
    "{{$.inputs.artifacts['nothing'].uri}}",
    "{",
    [],
    {},
    [7],
    [None],
    {"": None},
    {"name": 7},
)


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields where something stands, the innermost as well."""
    if place:
        yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from _places(each, (*place, key))


@functools.cache
def _original(name: str) -> dict[str, Any]:
    return next(iter(yaml.safe_load_all((GOLDEN / name).read_text(encoding="utf-8"))))


def _mutated(number: int) -> tuple[dict[str, Any], str]:
    """Returns a compiled pipeline with one place that is not as it was compiled, and what was done to it."""
    chance = random.Random(number)
    whole = copy.deepcopy(_original(chance.choice(ORIGINALS)))
    # The arguments of the steps are most of the places, and text all of them.
    places = [place for place in _places(whole) if chance.random() < 0.1 or "args" not in place[:-1]]
    place = chance.choice(places)
    holder = whole
    for key in place[:-1]:
        holder = holder[key]
    last, how = place[-1], chance.choice(("value", "value", "value", "gone", "renamed"))
    if how == "value":
        holder[last] = value = chance.choice(VALUES)
        return whole, f"{place}: {value!r}"
    value = holder.pop(last)
    if how == "renamed" and isinstance(holder, dict):
        holder[name := chance.choice(("other", "../../../outside", "", "a/b", "nul\0"))] = value
        return whole, f"{place}: called {name!r}"
    return whole, f"{place}: gone"


class Unheard:
    """Nobody listens."""

    def run_started(self, nodes: list[NodeRun]) -> None: ...

    def node_started(self, node: str, index: int, total: int) -> None: ...

    def node_ended(self, run: NodeRun) -> None: ...


def _files(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}


def _execute(file: Path, root: Path, started: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def start_once(command: container.Command, log: str) -> int:
        started.append(command.name)
        # As `subprocess` wants them.
        assert all(isinstance(word, str) and b"\0" not in os.fsencode(word) for word in command.words)
        assert all("=" not in name and b"\0" not in os.fsencode(name + value) for name, value in command.env.items())
        python, *_ = command.words
        assert python
        Path(log).write_text("it ran")
        return 0

    monkeypatch.setattr(container, "_start_once", start_once)
    job = read_job(str(file))
    folders = PipelineFolders(str(root), job.name)
    logs = Path(folders.local) / "logs"
    logs.mkdir(parents=True)
    parameters = rebased(job, folders, {})
    bring_modules(job, str(file.parent), folders)
    Execution(job, parameters, folders, str(logs)).run(Unheard())


def test_one_wrong_place_is_an_error_before_anything_is_started_or_none(tmp_path, monkeypatch):
    ends = []
    for number in range(int(os.environ.get("TFX_ESTIMATOR_MUTATIONS", 150))):
        whole, what = _mutated(number)
        folder = tmp_path / str(number) / "a" / "b" / "c"
        folder.mkdir(parents=True)
        file = folder / "it.json"
        file.write_text(json.dumps(whole))
        started: list[str] = []
        refused: Optional[TfxEstimatorError]
        try:
            _execute(file, folder / "root", started, monkeypatch)
        except TfxEstimatorError as error:
            refused = error
        except Exception as error:
            raise AssertionError(f"{number}: {what}: {type(error).__name__}: {error}") from error
        else:
            refused = None
        assert bool(started) == (refused is None), (number, what, str(refused))
        assert refused is None or (refused.expected and refused.todo), (number, what)
        ends.append(bool(started))
        written = _files(tmp_path / str(number))
        assert all(path.is_relative_to("a/b/c") for path in written), (number, what)
        assert all(path.parts[3] in ("root", "it.json") for path in written), (number, what)
    assert {*ends} == {True, False}
    assert not Path("/tmp/outside").exists()


@pytest.mark.parametrize("original", [path.name for path in sorted(GOLDEN.iterdir()) if ".tfjob" not in path.name])
def test_what_was_compiled_is_read(original):
    if original.endswith(".kubeflow.yaml"):
        with pytest.raises(DeclarationError, match="is an Argo Workflow"):
            read_job(str(GOLDEN / original))
        return
    if original == "digits.custom_job.json":
        # What the Trainer asks Vertex AI for, which is no pipeline.
        with pytest.raises(DeclarationError, match="is no compiled pipeline"):
            read_job(str(GOLDEN / original))
        return
    assert "Trainer" in [task.name for task in read_job(str(GOLDEN / original)).tasks]


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("pipelineInfo.name", "../../../tmp/evil", "the name of the pipeline, '../../../tmp/evil', is none"),
        ("pipelineInfo.name", "..", "the name of the pipeline"),
        ("deploymentSpec.executors.Trainer_executor.container.args", 7, "deploymentSpec does not keep to its schema"),
        ("deploymentSpec.executors.Trainer_executor.container", {}, "the container of the task Trainer has no command"),
        ("root.dag.tasks.Trainer.retryPolicy.maxRetryCount", "many", "pipelineSpec does not keep to its schema"),
        ("root.dag.tasks.Trainer.retryPolicy.maxRetryCount", -1, "the task Trainer has -1 retries"),
        ("root.dag.tasks.Trainer.dependentTasks", ["Nobody"], "the task Trainer waits for Nobody, which is no task"),
        ("root.dag.tasks", {}, "the pipeline has no task"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, capsys, place, value, said):
    whole = json.loads((GOLDEN / "digits.vertex.json").read_text())
    holder = whole["pipelineSpec"]
    *path, last = place.split(".")
    for key in path:
        holder = holder[key]
    holder[last] = value
    (file := tmp_path / "it.json").write_text(json.dumps(whole))
    assert main(["execute", str(file), "--root", str(tmp_path / "root")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    ("name", "is_one"), [("tfx_estimator_user_modules-0+1f-py3-none-any.whl", True), ("../it.whl", False)]
)
def test_the_wheel_of_a_container_lies_beside_the_file(tmp_path, name, is_one):
    whole = json.loads((GOLDEN / "digits.vertex.json").read_text())
    told = whole["pipelineSpec"]["deploymentSpec"]["executors"]["Trainer_executor"]["container"]
    packed = Packed(name, b"", ())
    told.update(command=[*entry.COMMAND], args=entry.arguments(entry.HOME, "/home", packed, told["command"]))
    (file := tmp_path / "it.json").write_text(json.dumps(whole))
    if is_one:
        assert read_job(str(file)).tasks
        return
    with pytest.raises(DeclarationError, match=r"the name of the modules of the task Trainer, '\.\./it\.whl', is none"):
        read_job(str(file))


def test_a_task_cannot_lead_elsewhere(tmp_path):
    whole = json.loads((GOLDEN / "digits.vertex.json").read_text())
    tasks = whole["pipelineSpec"]["root"]["dag"]["tasks"]
    tasks["a/b"] = tasks.pop("Pusher")
    (file := tmp_path / "it.json").write_text(json.dumps(whole))
    with pytest.raises(DeclarationError, match="the name of a task, 'a/b', is none"):
        read_job(str(file))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"pipelineSpec": {"schemaVersion": "2.1.0", "root": %s}}'])
def test_what_is_nested_too_deeply_is_no_compiled_pipeline(tmp_path, text):
    if "%s" in text:
        text = text.replace("%s", '{"dag":' * 800 + "{}" + "}" * 800)
    (file := tmp_path / "it.json").write_text(text)
    with pytest.raises(DeclarationError, match=r"is nested too deeply|does not keep to its schema"):
        read_job(str(file))
