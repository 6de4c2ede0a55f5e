"""A hand-written pipeline that is executed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.platforms.registry import VERTEX
from tfx_estimator.pipeline.platforms.rehearsal.execution import Execution, rebased
from tfx_estimator.pipeline.platforms.rehearsal.job import read_job
from tfx_estimator.pipeline.runners.listener import Listener, NodeRun

# A container: records its input, and writes its output metadata.
STEP = """
import json, os, pathlib, sys
invocation = json.loads(sys.argv[1])
(key,) = invocation["outputs"]["artifacts"].keys() - {"executor-logs"}
made = invocation["outputs"]["artifacts"][key]["artifacts"][0]
folder = pathlib.Path(made["uri"])
folder.mkdir(parents=True, exist_ok=True)
tries = folder / "tries"
count = int(tries.read_text()) + 1 if tries.exists() else 1
tries.write_text(str(count))
if count <= int(os.environ.get("KILLED", 0)):
    print("half done", flush=True)
    os.kill(os.getpid(), 9)
known = {"cwd": os.listdir(), "path": os.environ.get("PYTHONPATH"), "arguments": sys.argv[2:], "invocation": invocation}
known["place"] = [name for name in os.environ if name.startswith(("SLURM_", "KFP_"))]
(folder / "known.json").write_text(json.dumps(known))
metadata = {"rows": 3, "blessed": 1, "current_model_id": made.get("name", "")}
metadata.update(json.loads(os.environ.get("ALSO", "{}")))
artifact = {"name": made.get("name", ""), "uri": made["uri"], "metadata": metadata}
pathlib.Path(invocation["outputs"]["outputFile"]).parent.mkdir(parents=True, exist_ok=True)
values = {name: f"{name} of {count}" for name in invocation["outputs"].get("parameters", {})}
output = {"artifacts": {key: {"artifacts": [artifact]}}, "parameterValues": values}
pathlib.Path(invocation["outputs"]["outputFile"]).write_text(json.dumps(output))
"""


class Heard(Listener):
    def __init__(self) -> None:
        self.states: dict[str, str] = {}

    def node_ended(self, run: NodeRun) -> None:
        self.states[run.node] = run.state


def typed(title: str) -> dict[str, Any]:
    return {"artifactType": {"instanceSchema": f"title: {title}\ntype: object\n"}}


class Compiled:
    """A hand-written pipeline."""

    target = VERTEX

    def __init__(self, folder: Path) -> None:
        self.script = folder / "step.py"
        self.script.write_text(STEP)
        self.folder, self.name, self.root = folder, "small", "root"
        self.tasks: dict[str, Any] = {}
        self.components: dict[str, Any] = {}
        self.executors: dict[str, Any] = {}

    def add(self, name: str, executor: dict[str, Any], title: str, **sources: str) -> dict[str, Any]:
        """Adds a task whose one output is `made`; returns it."""
        artifacts = {
            key: {"taskOutputArtifact": {"producerTask": task, "outputArtifactKey": "made"}}
            for key, task in sources.items()
        }
        parameters = {"greeting": {"parameterType": "STRING"}, "count": {"parameterType": "NUMBER_INTEGER"}}
        given = {"greeting": {"componentInputParameter": "greeting"}, "count": {"runtimeValue": {"constant": 7}}}
        self.tasks[name] = {
            "componentRef": {"name": name},
            "cachingOptions": {"enableCache": True},
            "inputs": {"artifacts": artifacts, "parameters": given},
        }
        self.components[name] = {
            "executorLabel": name,
            "inputDefinitions": {"parameters": parameters, "artifacts": dict.fromkeys(sources, typed("tfx.Artifact"))},
            "outputDefinitions": {"artifacts": {"made": typed(title)}},
        }
        self.executors[name] = executor
        return self.tasks[name]

    def step(
        self, name: str, title: str = "tfx.Examples", killed: int = 0, also: Any = None, **sources: str
    ) -> dict[str, Any]:
        """Adds a task whose container is killed this many times and adds properties to its output."""
        container = {
            "image": "it",
            "command": ["python", str(self.script)],
            "args": ["{{$}}", "--greeting={{$.inputs.parameters['greeting']}}"],
            "env": [{"name": "KILLED", "value": str(killed)}, {"name": "ALSO", "value": json.dumps(also or {})}],
        }
        return self.add(name, {"container": container}, title, **sources)

    def query(self, name: str, text: str, title: str, **sources: str) -> None:
        self.add(name, {"resolver": {"outputArtifactQueries": {"made": {"filter": text}}}}, title, **sources)

    def write(self) -> str:
        greeting = {"parameterType": "STRING", "defaultValue": "hello"}
        spec = {
            "schemaVersion": "2.1.0",
            "pipelineInfo": {"name": self.name},
            "root": {"dag": {"tasks": self.tasks}, "inputDefinitions": {"parameters": {"greeting": greeting}}},
            "components": self.components,
            "deploymentSpec": {"executors": self.executors},
        }
        file = self.folder / "small.json"
        job = {"pipelineSpec": spec, "runtimeConfig": {"gcsOutputDirectory": "gs://there/small"}}
        file.write_text(json.dumps(job if self.target == VERTEX else spec))
        return str(file)

    def execute(self, **given: str) -> tuple[dict[str, str], dict[str, Any]]:
        """Executes it; returns the states and the outputs by task."""
        job, folders, heard = read_job(self.write()), PipelineFolders(str(self.folder / self.root), self.name), Heard()
        (self.folder / "logs").mkdir(exist_ok=True)
        outputs = Execution(job, rebased(job, folders, given), folders, str(self.folder / "logs")).run(heard)
        return heard.states, outputs


@pytest.fixture
def compiled(tmp_path) -> Compiled:
    return Compiled(tmp_path)
