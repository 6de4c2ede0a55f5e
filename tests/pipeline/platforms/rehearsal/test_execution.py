"""A compiled pipeline is executed as by a service: inputs, outputs, tries, the cache, resolvers."""

from __future__ import annotations

import json
import logging
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.pipeline.platforms.rehearsal.conftest import typed
from tests.root import ROOT, start_python
from tests.waiting import wait_until
from tfx_estimator.pipeline.base.errors import DeclarationError, PipelineError
from tfx_estimator.pipeline.folders import PipelineFolders, only_run
from tfx_estimator.pipeline.platforms.registry import KUBEFLOW, TARGETS
from tfx_estimator.pipeline.platforms.rehearsal.execution import rebased
from tfx_estimator.pipeline.platforms.rehearsal.job import read_job

pytestmark = pytest.mark.unit

GOLDEN = ROOT / "tests" / "golden" / "compiled"

BLESSED = 'schema_title="tfx.ModelBlessing" AND state=LIVE AND metadata.blessed.number_value=1'
OF_BLESSING = (
    'schema_title="tfx.Model" AND state=LIVE AND '
    "name=\"{{$.inputs.artifacts['input'].metadata['current_model_id']}}\""
)


def _known(outputs: dict[str, Any], task: str) -> dict[str, Any]:
    return json.loads((Path(outputs[task]["made"]["uri"]) / "known.json").read_text())


def test_a_container_gets_the_same_input_as_in_a_service(compiled, monkeypatch):
    for name in ("PYTHONPATH", "SLURM_PROCID", "KFP_POD_NAME"):
        monkeypatch.setenv(name, "/mine")
    compiled.step("Second", "tfx.Model", first="First")
    compiled.step("First")
    states, outputs = compiled.execute()
    assert states == {"First": "ran", "Second": "ran"}
    known = _known(outputs, "Second")
    assert known["arguments"] == ["--greeting=hello"]
    assert (known["cwd"], known["path"], known["place"]) == ([], None, [])
    inputs = known["invocation"]["inputs"]
    assert inputs["parameterValues"] == {"greeting": "hello", "count": 7.0}
    assert isinstance(inputs["parameterValues"]["count"], float)
    (first,) = inputs["artifacts"]["first"]["artifacts"]
    assert first == outputs["First"]["made"]
    assert first["metadata"]["rows"] == 3
    assert "title: tfx.Examples" in first["type"]["instanceSchema"]
    (made,) = known["invocation"]["outputs"]["artifacts"]["made"]["artifacts"]
    assert made["uri"].startswith(str(compiled.folder / "root" / "small"))
    assert Path(known["invocation"]["outputs"]["outputFile"]).is_file()


def test_a_container_gets_the_same_input_as_in_kubeflow_pipelines_2(compiled):
    compiled.target = KUBEFLOW
    compiled.step("First", also={"valid": True, "splits": ["train"], "by_split": {"train": 1}})
    compiled.step("Second", "tfx.Model", first="First")
    _, outputs = compiled.execute()
    given = _known(outputs, "Second")["invocation"]
    # As ML Metadata stores it, with its ID and fields that no client sets.
    (first,) = given["inputs"]["artifacts"]["first"]["artifacts"]
    assert first.pop("metadata") == {
        "display_name": "made",
        "store_session_info": "null",
        "rows": 3.0,
        "blessed": 1.0,
        "current_model_id": "",
        "valid": 1.0,
        "splits": {"list": ["train"]},
        "by_split": {"struct": {"train": 1}},
    }
    assert first == {"name": "1", "uri": outputs["First"]["made"]["uri"], "type": {"instanceSchema": ""}}
    (made,) = given["outputs"]["artifacts"]["made"]["artifacts"]
    assert made == {"uri": outputs["Second"]["made"]["uri"], "type": typed("tfx.Model")["artifactType"]}
    assert given["outputs"]["artifacts"]["executor-logs"]["artifacts"][0]["type"] == {"schemaTitle": "system.Artifact"}
    # The file was in the pod, which is gone.
    file = Path(given["outputs"]["outputFile"])
    assert file.parts[-2:] == ("kfp_outputs", "output_metadata.json")
    assert not file.parent.parent.exists()
    assert outputs["Second"]["made"]["name"] == "2"
    assert {*compiled.execute()[0].values()} == {"cached"}
    states, again = compiled.execute(greeting="other")
    assert {*states.values()} == {"ran"}
    assert [each["made"]["name"] for each in again.values()] == ["3", "4"]


def test_a_property_that_kubeflow_pipelines_2_cannot_keep_is_named(compiled):
    compiled.target = KUBEFLOW
    compiled.step("First", also={"span": None})
    with pytest.raises(PipelineError, match="the property span of the output made of First is null"):
        compiled.execute()


@pytest.mark.parametrize("target", TARGETS)
def test_an_output_parameter_reaches_the_next_step_and_is_cached(compiled, target):
    compiled.target = target
    compiled.step("First")
    compiled.components["First"]["outputDefinitions"]["parameters"] = {"found": {"parameterType": "STRING"}}
    second = compiled.step("Second", first="First")
    compiled.components["Second"]["inputDefinitions"]["parameters"]["baseline"] = {"parameterType": "STRING"}
    output = {"producerTask": "First", "outputParameterKey": "found"}
    second["inputs"]["parameters"]["baseline"] = {"taskOutputParameter": output}
    _, outputs = compiled.execute()
    assert _known(outputs, "Second")["invocation"]["inputs"]["parameterValues"]["baseline"] == "found of 1"
    compiled.executors["Second"]["container"]["args"].append("--edited")
    states, outputs = compiled.execute()
    assert states == {"First": "cached", "Second": "ran"}
    assert _known(outputs, "Second")["invocation"]["inputs"]["parameterValues"]["baseline"] == "found of 1"


def test_finished_steps_are_cached_until_something_changes(compiled):
    compiled.step("First")
    compiled.step("Second", first="First")
    _, before = compiled.execute()
    states, outputs = compiled.execute()
    assert states == {"First": "cached", "Second": "cached"}
    assert outputs == before
    assert {*compiled.execute(greeting="other")[0].values()} == {"ran"}
    compiled.executors["Second"]["container"]["args"].append("--edited")
    assert compiled.execute()[0] == {"First": "cached", "Second": "ran"}
    # The artifact is gone, and so is the one derived from it.
    os.rename(before["First"]["made"]["uri"], compiled.folder / "elsewhere")
    assert compiled.execute()[0] == {"First": "ran", "Second": "ran"}


def test_a_moved_root_does_not_use_newer_artifacts_in_its_old_place(compiled, caplog):
    compiled.step("First")
    home = compiled.folder / "root" / "small"
    pushed = {"pushed_destination": f"{home}/serving/1", "elsewhere": f"{home}-else"}
    compiled.step("Second", also=pushed, first="First")
    compiled.execute()
    (compiled.folder / "root").rename(compiled.folder / "old")
    _, others = compiled.execute()
    compiled.root = "old"
    with caplog.at_level(logging.INFO, "absl.tfx_estimator"):
        states, outputs = compiled.execute()
    moved = compiled.folder / "old" / "small"
    assert {*states.values()} == {"cached"}
    for task in ("First", "Second"):
        uri, other = (Path(each[task]["made"]["uri"]) for each in (outputs, others))
        assert uri == moved / other.relative_to(home)
    metadata = outputs["Second"]["made"]["metadata"]
    assert (metadata["pushed_destination"], metadata["elsewhere"]) == (f"{moved}/serving/1", f"{home}-else")
    assert f"{moved} was moved or copied from {home}: its artifacts are used from here" in caplog.messages


def test_a_killed_step_is_tried_as_often_as_the_file_says(compiled):
    compiled.step("First", killed=2)["retryPolicy"] = {"maxRetryCount": 2}
    states, outputs = compiled.execute()
    assert states == {"First": "ran"}
    assert (Path(outputs["First"]["made"]["uri"]) / "tries").read_text() == "3"
    names = {path.name for path in (compiled.folder / "logs").iterdir()}
    assert names == {"First.log", "First-2.log", "First-3.log"}


def test_a_step_that_fails_each_time_ends_the_execution(compiled):
    compiled.step("First", killed=9)["retryPolicy"] = {"maxRetryCount": 1}
    compiled.step("Second", first="First")
    with pytest.raises(PipelineError) as ended:
        compiled.execute()
    assert f"ended by {signal.SIGKILL.name}, 2 times" in str(ended.value)
    assert "half done" in str(ended.value)
    # The next execution finds no partial output in its folder.
    with pytest.raises(PipelineError):
        compiled.execute()
    folders = compiled.folder / "root" / "small" / "artifacts" / "local"
    tries = {path.name: (path / "First_1" / "made" / "tries").read_text() for path in folders.iterdir()}
    assert tries == {"small-1": "2", "small-2": "2"}


def test_a_missing_command_is_named(compiled):
    compiled.step("First")
    compiled.executors["First"]["container"]["command"] = ["no-such-program"]
    with pytest.raises(PipelineError, match="no-such-program cannot be started: No such file or directory"):
        compiled.execute()


# Each starts `sleep`, and waits for it.
CONTAINER = """
import sys
from tfx_estimator.pipeline.platforms.rehearsal.container import Command, start
start(Command("it", ("sleep", "300"), {}), sys.argv[1], 1)
"""
REPLICA = """
import sys, time
from tfx_estimator.pipeline.platforms.vertex.custom_jobs import LocalService
with LocalService(sys.argv[1]) as service:
    pool = {"replica_count": 1, "container_spec": {"command": ["sleep"], "args": ["300"], "env": []}}
    service.create({"job_spec": {"worker_pool_specs": [pool]}})
    time.sleep(300)
"""


@pytest.mark.timeout(90)
@pytest.mark.parametrize("script", [CONTAINER, REPLICA])
def test_child_processes_do_not_outlive_a_killed_parent(tmp_path, script):
    run = start_python("-c", script, str(tmp_path), cwd=tmp_path)

    def sleeping() -> list[psutil.Process]:
        assert run.poll() is None, run.stderr.read()
        return [each for each in psutil.Process(run.pid).children() if each.name() == "sleep"]

    try:
        started = wait_until(sleeping, "what it starts")
    finally:
        run.kill()
        run.wait()
    gone, alive = psutil.wait_procs(started, 10)
    for process in alive:
        process.kill()
    assert (len(gone), alive) == (1, [])


def test_the_latest_blessed_model_is_found_from_the_second_execution_on(compiled):
    compiled.query("Blessing", BLESSED, "tfx.ModelBlessing")
    compiled.query("Model", OF_BLESSING, "tfx.Model", input="Blessing")
    compiled.step("Trainer", "tfx.Model")
    compiled.step("Evaluator", "tfx.ModelBlessing", model="Trainer", baseline="Model")
    # After the resolvers, as in a compiled pipeline.
    compiled.tasks["Trainer"]["dependentTasks"] = ["Model"]
    _, first = compiled.execute()
    assert (first["Blessing"], first["Model"]) == ({}, {})
    assert "baseline" not in _known(first, "Evaluator")["invocation"]["inputs"]["artifacts"]
    # The Evaluator's stand-in blesses itself: no model has such a name.
    _, second = compiled.execute()
    assert second["Blessing"]["made"]["name"] == first["Evaluator"]["made"]["name"]
    assert second["Model"] == {}
    compiled.query("Model", 'schema_title="tfx.Model" AND state=LIVE', "tfx.Model", input="Blessing")
    states, third = compiled.execute()
    assert third["Model"] == first["Trainer"]
    assert states["Evaluator"] == "ran"
    baseline = _known(third, "Evaluator")["invocation"]["inputs"]["artifacts"]["baseline"]
    assert baseline == {"artifacts": [first["Trainer"]["made"]]}


def test_a_blessing_of_another_pipeline_is_not_found(compiled):
    # A query without `in_context` searches the pipeline's own context.
    compiled.query("Blessing", BLESSED, "tfx.ModelBlessing")
    compiled.step("Evaluator", "tfx.ModelBlessing")
    compiled.tasks["Evaluator"]["dependentTasks"] = ["Blessing"]
    _, first = compiled.execute()
    compiled.name = "other"
    _, other = compiled.execute()
    assert other["Blessing"] == {}
    compiled.name = "small"
    assert compiled.execute()[1]["Blessing"] == first["Evaluator"]


def test_the_pipelines_folders_are_in_the_root_and_parameters_have_their_types(compiled, tmp_path):
    compiled.step("First")
    job = read_job(compiled.write())
    parameters = {"pipeline_home": "gs://there", "push_destination": "gs://there/serving", "greeting": "hello"}
    object.__setattr__(job, "parameters", parameters)
    folders = PipelineFolders(str(tmp_path), "small")
    here = rebased(job, folders, {"greeting": "you"})
    assert here == {"pipeline_home": folders.home, "push_destination": folders.serving, "greeting": "you"}
    with pytest.raises(DeclarationError, match="no runtime parameter 'greting'"):
        rebased(job, folders, {"greting": "you"})
    # And each has its type.
    kinds = {"n": "NUMBER_INTEGER", "x": "NUMBER_DOUBLE", "yes": "BOOLEAN", "s": "STRING"}
    object.__setattr__(job, "kinds", kinds)
    object.__setattr__(job, "parameters", dict.fromkeys(kinds, 0))
    given = {"n": "7", "x": "1e-3", "yes": "false", "s": "7"}
    assert rebased(job, folders, given) == {"n": 7, "x": 0.001, "yes": False, "s": "7"}
    for name in ("n", "x", "yes"):
        with pytest.raises(DeclarationError, match=f"the runtime parameter {name} is a {kinds[name]}, not 'abc'"):
            rebased(job, folders, {**given, name: "abc"})


def test_a_concurrent_execution_is_refused_with_the_option_of_this_verb(compiled, cli):
    compiled.step("First")
    root = str(compiled.folder / "root")
    with only_run(PipelineFolders(root, "small")):
        assert "or name another --root" in cli("execute", compiled.write(), "--root", root, code=6).err


TRIGGERED = '"cachingOptions"', '"triggerPolicy": {"condition": "false"}, "cachingOptions"'


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda whole: {"kind": "Workflow"}, "is an Argo Workflow"),
        (lambda whole: [], "is no compiled pipeline"),
        (lambda whole: {"pipelineSpec": {}}, "KeyError: 'schemaVersion'"),
        (lambda whole: {"pipelineSpec": {**whole["pipelineSpec"], "schemaVersion": "2.0.0"}}, "version is 2.0.0"),
        (lambda whole: json.loads(json.dumps(whole).replace(*TRIGGERED)), "the task First has a triggerPolicy"),
    ],
)
def test_anything_but_a_compiled_pipeline_is_refused(compiled, cli, change, message):
    compiled.step("First")
    file = Path(compiled.write())
    file.write_text(json.dumps(change(json.loads(file.read_text()))))
    stderr = cli("execute", str(file), "--root", str(compiled.folder / "root"), code=2).err
    assert message in stderr
    assert "Traceback" not in stderr
    assert not (compiled.folder / "root").exists()


@pytest.mark.parametrize(
    "original", [path.name for path in sorted(GOLDEN.glob("*.*")) if path.name.split(".")[1] in TARGETS]
)
def test_compiled_files_are_read(original):
    assert "Trainer" in [task.name for task in read_job(str(GOLDEN / original)).tasks]
