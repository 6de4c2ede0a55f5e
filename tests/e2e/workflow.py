"""The containers of a Workflow of Kubeflow Pipelines 1, in order, as Argo starts them, with ML Metadata behind gRPC."""

from __future__ import annotations

import contextlib
import graphlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.e2e.metadata_server import serve


@dataclass
class Container:
    name: str
    words: list[str]
    environment: dict[str, str]


@contextlib.contextmanager
def containers(file: Path, folder: Path, run: str, values: Mapping[str, str]) -> Iterator[list[Container]]:
    spec = yaml.safe_load(file.read_text())["spec"]
    templates = {template["name"]: template for template in spec["templates"]}
    tasks = {task["name"]: task for task in templates[spec["entrypoint"]]["dag"]["tasks"]}
    order = graphlib.TopologicalSorter({name: task.get("dependencies", ()) for name, task in tasks.items()})
    assert {*values} == {each["name"] for each in spec["arguments"]["parameters"]}
    with serve(folder / "metadata.sqlite") as port:
        found = []
        for name in order.static_order():
            container = templates[tasks[name]["template"]]["container"]
            # Without a value, it is what Kubernetes tells of a pod.
            told = {each["name"]: each.get("value", f"{run}-{name}") for each in container["env"]}
            words = [*container["command"], *container["args"]]
            for parameter, value in values.items():
                words = [word.replace(f"{{{{inputs.parameters.{parameter}}}}}", value) for word in words]
            place = words.index("--metadata_ui_path") + 1
            words[place] = str(folder / "ui.json")
            told.update(WORKFLOW_ID=run, METADATA_GRPC_SERVICE_HOST="localhost", METADATA_GRPC_SERVICE_PORT=str(port))
            assert words[0] == "python"
            found.append(Container(name, [sys.executable, *words[1:]], {**told, "TMPDIR": str(folder)}))
        yield found


def execute(container: Container, folder: Path) -> None:
    """Runs a container's command to its end, which must be a good one."""
    done = subprocess.run(
        container.words,
        cwd=folder,
        env={**os.environ, **container.environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{container.name}\n{done.stdout}{done.stderr}"
