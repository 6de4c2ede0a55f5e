"""Executes a compiled pipeline task by task, in the order of their dependencies.

Images, machines, accounts and the parallel execution of independent tasks are not emulated.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional

from tfx_estimator.components.trainer.settings import HOME_KEY
from tfx_estimator.pipeline.base.ending import shared_status, signals
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.platforms.registry import KUBEFLOW
from tfx_estimator.pipeline.platforms.rehearsal import container, records, services
from tfx_estimator.pipeline.platforms.rehearsal.job import Job, Task
from tfx_estimator.pipeline.platforms.rehearsal.records import Record, Records, artifact_name
from tfx_estimator.pipeline.runners import entry
from tfx_estimator.pipeline.runners.listener import FAILED, INTERRUPTED, NOT_REACHED, Listener, NodeRun

Outputs = dict[str, dict[str, dict[str, Any]]]
_OUTPUT_FILE = "executor_output.json"
_PUSH_DESTINATION = "push_destination"


def rebased(job: Job, folders: PipelineFolders, given: Mapping[str, str]) -> dict[str, Any]:
    """Returns the runtime parameters of a rehearsal, with local folders in place of the pipeline's own.

    Args:
        folders: The local folders.
        given: The user's values, as text.

    Raises:
        DeclarationError: A parameter is unknown, has no value, or one of another type.
    """
    if unknown := [name for name in given if name not in job.parameters]:
        raise DeclarationError(
            f"the pipeline has no runtime parameter {unknown[0]!r}",
            expected="one of " + (", ".join(sorted(job.parameters)) or "none"),
            todo="correct --parameter",
        )
    here = {HOME_KEY: folders.home, _PUSH_DESTINATION: folders.serving}
    values = {**job.parameters, **{name: place for name, place in here.items() if name in job.parameters}}
    values.update((name, _typed(name, text, job.kinds.get(name, ""))) for name, text in given.items())
    if missing := [name for name, value in values.items() if value is None]:
        raise DeclarationError(
            f"the runtime parameter {missing[0]} has no value",
            expected="a value for each parameter without a default",
            todo=f"give --parameter {missing[0]}=VALUE",
        )
    return values


def _typed(name: str, text: str, kind: str) -> Any:
    """Parses a parameter by its type; one of an unknown type stays text."""
    wanted = {"NUMBER_INTEGER": int, "NUMBER_DOUBLE": float, "BOOLEAN": bool, "LIST": list, "STRUCT": dict}.get(kind)
    if wanted is None:
        return text
    with contextlib.suppress(ValueError):
        value = float(text) if wanted is float else json.loads(text)
        if type(value) is wanted:
            return value
    raise DeclarationError(
        f"the runtime parameter {name} is a {kind}, not {text!r}",
        expected="JSON of that type: 7, 0.5, true, [1, 2]",
        todo="correct --parameter",
    )


def copy_modules(job: Job, source: str, folders: PipelineFolders) -> None:
    """Copies the wheels of the user's modules to the pipeline's folder, where the steps expect them.

    Args:
        source: Folder of the compiled file and the wheels.
        folders: The local folders.
    """
    for task in job.tasks:
        if (name := entry.wheel_of(task.container or {})) is None:
            continue
        if os.path.isfile(wheel := os.path.join(source, name)):
            records.write(os.path.join(folders.home, entry.FOLDER, name), Path(wheel).read_bytes())


@dataclass
class Execution:
    """One execution of a job.

    Args:
        parameters: The values of its runtime parameters.
        folders: The local folders of artifacts, and of the records of earlier executions.
        logs: Folder for the logs of the containers.
        caches: Whether results of earlier executions may be reused.
    """

    job: Job
    parameters: Mapping[str, Any]
    folders: PipelineFolders
    logs: str
    caches: bool = True

    def run(self, listener: Listener) -> Outputs:
        """Executes all tasks.

        Returns:
            The artifacts by task and output, as RuntimeArtifact JSON.

        Raises:
            PipelineError: A task failed in all its tries, or a placeholder has no value.
        """
        self._records = Records(os.path.join(self.folders.local, "executions"), self.folders.home)
        self._number = self._records.next_number
        # An execution that ended before its first task was done has left a folder, but no record.
        while records.exists(self._folder()):
            self._number += 1
        self._outputs: Outputs = {}
        self._values: dict[str, dict[str, Any]] = {}
        listener.run_started([NodeRun(task.name, NOT_REACHED, 0.0, None, task.upstream) for task in self.job.tasks])
        for index, task in enumerate(self.job.tasks, 1):
            shared_status.at(f"in component {task.name}")
            listener.node_started(task.name, index, len(self.job.tasks))
            run, started = NodeRun(task.name, FAILED, 0.0, None, task.upstream), time.monotonic()
            try:
                state = self._execute(task)
            except BaseException as error:
                stopped = signals.received() or isinstance(error, signals.SignalledError)
                state = INTERRUPTED if stopped else FAILED
                listener.node_ended(replace(run, state=state, seconds=time.monotonic() - started))
                raise
            listener.node_ended(replace(run, state=state, seconds=time.monotonic() - started))
        return self._outputs

    def _execute(self, task: Task) -> str:
        """Executes one task; returns its state."""
        artifacts, parameters = self._artifacts(task), self._parameters(task)
        if "resolver" in task.executor:
            self._outputs[task.name] = services.resolve(task, artifacts, self._records.artifacts())
            return "resolved"
        key = _key(task, artifacts, parameters)
        if self.caches and task.is_cached and (record := self._records.cached(key)):
            self._outputs[task.name], self._values[task.name] = record.outputs, record.values
            return "cached"
        outputs, values = self._start(task, artifacts, parameters)
        self._records.add(Record(self._number, task.name, key, outputs, values))
        self._outputs[task.name], self._values[task.name] = outputs, values
        return "ran"

    def _artifacts(self, task: Task) -> dict[str, dict[str, Any]]:
        """Returns the input artifacts by input; an unresolved optional one is omitted."""
        found = {}
        for key, source in task.given("artifacts").items():
            producer = source["taskOutputArtifact"]
            made = self._outputs[producer["producerTask"]].get(producer["outputArtifactKey"])
            if made is not None:
                found[key] = made
        return found

    def _parameters(self, task: Task) -> dict[str, Any]:
        """Returns the input parameters, with the component's types."""
        values: dict[str, Any] = {}
        for key, source in task.given("parameters").items():
            if "componentInputParameter" in source:
                values[key] = self.parameters[source["componentInputParameter"]]
            elif producer := source.get("taskOutputParameter"):
                values[key] = self._values[producer["producerTask"]][producer["outputParameterKey"]]
            else:
                values[key] = source["runtimeValue"]["constant"]
            kind = task.definitions("input", "parameters").get(key, {}).get("parameterType", "")
            if kind.startswith("NUMBER_"):
                # A Value of a protocol buffer has doubles only.
                values[key] = float(values[key])
        return values

    def _folder(self) -> str:
        """Returns the artifacts' folder of this execution."""
        return os.path.join(self.folders.root, "local", f"{self.job.name}-{self._number}")

    def _start(
        self, task: Task, artifacts: Mapping[str, dict[str, Any]], parameters: Mapping[str, Any]
    ) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
        """Starts the task's container; returns its output artifacts and parameters."""
        # As on Vertex AI: ROOT/PROJECT/JOB/TASK_ID/OUTPUT.
        folder = os.path.join(self._folder(), f"{task.name}_1")
        records.make_folder(folder)
        outputs = {
            key: {
                "name": self._name(task, key, index),
                "uri": os.path.join(folder, key),
                "type": defined["artifactType"],
                "metadata": {},
            }
            for index, (key, defined) in enumerate(task.definitions("output", "artifacts").items())
        }
        if self._is_kubeflow:
            with tempfile.TemporaryDirectory() as pod:
                given = services.as_inputs(artifacts), parameters, services.as_outputs(outputs, folder)
                made, values = self._run(task, *given, os.path.join(pod, services.OUTPUT_FILE))
        else:
            made, values = self._run(task, artifacts, parameters, outputs, os.path.join(folder, _OUTPUT_FILE))
        for key, output in outputs.items():
            described: dict[str, Any] = {
                name: made[key][name] for name in ("uri", "metadata") if name in made.get(key, {})
            }
            outputs[key] = {**output, **described}
            if self._is_kubeflow:
                outputs[key] = services.as_kept(outputs[key], task.name, key)
        return outputs, values

    def _run(
        self,
        task: Task,
        inputs: Mapping[str, dict[str, Any]],
        parameters: Mapping[str, Any],
        outputs: Mapping[str, dict[str, Any]],
        file: str,
    ) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
        """Runs the task's container; returns the artifacts and parameters that it reports."""
        places = {key: os.path.join(os.path.dirname(file), key) for key in task.definitions("output", "parameters")}
        executor_input = {
            "inputs": {"artifacts": _listed(inputs), "parameterValues": dict(parameters)},
            "outputs": {
                "artifacts": _listed(outputs),
                "parameters": {key: {"outputFile": place} for key, place in places.items()},
                "outputFile": file,
            },
        }
        spec = task.container or {}
        words = (*spec.get("command", ()), *spec.get("args", ()))
        filled = tuple(container.fill(word, executor_input) for word in words)
        variables = {each["name"]: each.get("value", "") for each in spec.get("env", ())}
        container.start(container.Command(task.name, filled, variables), self.logs, task.tries)
        return _read_output(file)

    @property
    def _is_kubeflow(self) -> bool:
        return self.job.target == KUBEFLOW

    def _name(self, task: Task, key: str, index: int = 0) -> str:
        """Returns the name of a new artifact, the `index`th of its task."""
        if self._is_kubeflow:
            return str(index + services.name_after([artifact["name"] for artifact in self._records.artifacts()]))
        return artifact_name(self._number, task.name, key)


def _listed(artifacts: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    return {key: {"artifacts": [artifact]} for key, artifact in artifacts.items()}


def _read_output(file: str) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Returns the artifacts and output parameters that the container reports."""
    output: dict[str, Any] = json.loads(records.read(file) or "{}")
    made: Optional[dict[str, Any]] = output.get("artifacts")
    artifacts = {key: each["artifacts"][0] for key, each in (made or {}).items() if each.get("artifacts")}
    return artifacts, output.get("parameterValues") or {}


def _key(task: Task, artifacts: Mapping[str, dict[str, Any]], parameters: Mapping[str, Any]) -> str:
    """Returns the cache key, a digest of the interface, the container and the inputs."""
    names = {key: artifact["name"] for key, artifact in artifacts.items()}
    whole = [task.name, task.component, task.container, names, parameters]
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
