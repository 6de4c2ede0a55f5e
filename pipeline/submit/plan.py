"""What a compiled pipeline will run on, as its file says it; and for how long, as an earlier run of it here has."""

from __future__ import annotations

import graphlib
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Optional

import yaml

from tfx_estimator.components.trainer.custom_job.plan import PLAN_KEY, Plan
from tfx_estimator.components.trainer.settings import OPERATION_KEY, SETTINGS_KEY, Settings
from tfx_estimator.components.trainer.tfjob import launcher as tfjob
from tfx_estimator.components.trainer.tfjob.manifest import make_manifest
from tfx_estimator.pipeline.base.targets import KUBEFLOW, TFJOB, VERTEX
from tfx_estimator.pipeline.base.text import duration
from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.report.source import Run, log_folders, read_run
from tfx_estimator.pipeline.runners.executing.job import read_spec

_OWN = "the service's own"
_CORES, _MEMORY = ("cpu", "memory")
_PODS = ("Chief", "Worker", "PS", "Evaluator")
# In the summary of a run.
_PACE, _TRAINER, _RAN = "examples_per_second", "Trainer", "ran"


class Row(NamedTuple):
    """What one step, or several machines alike, will run on.

    Args:
        step: Its name; with a number of machines, if there may be several.
        machine: Its type, or most CPUs and memory.
        accelerator: Empty for none.
    """

    step: str
    machine: str
    accelerator: str
    image: str


def read_plan(text: str, target: str) -> list[Row]:
    """Reads what was compiled.

    Args:
        target: One of `targets.ALL_TARGETS`.
    """
    first, *rest = yaml.safe_load_all(text) if target != VERTEX else [json.loads(text)]
    if target == TFJOB:
        return list(_of_pods(rest[0]))
    if target == KUBEFLOW:
        return list(_of_workflow(first))
    return list(_of_spec(first["pipelineSpec"] if target == VERTEX else first))


def lines(rows: list[Row], more: dict[str, str]) -> list[str]:
    """Returns a table, and what else is to be known before it is submitted."""
    titles = Row("step", "machine", "accelerator", "")
    images = list(dict.fromkeys(row.image for row in rows))
    cells = [titles, *rows]
    widths = [max(len(row[place]) for row in cells) for place in range(3)]
    told = ["  ".join(row[place].ljust(widths[place]) for place in range(3)).rstrip() for row in cells]
    more = {"image": ", ".join(images), **more}
    width = max(map(len, more))
    return [*told, "", *(f"{title:<{width}}  {value}" for title, value in more.items())]


def estimate_hours(declaration: Declaration, runs: str) -> str:
    """Estimates, in words; says so where nothing is known.

    Args:
        runs: Folder of runs, in which that of the pipeline is looked for.
    """
    trainer = declaration.trainer
    if (run := _measured(declaration, runs)) is None:
        return (
            f"cannot be told: no finished run in {os.path.join(runs, declaration.name)} has measured this model's "
            "pace; name the folder of runs by --runs"
        )
    pace = run.summary["training"][_PACE]
    steps = trainer.train_steps
    if steps is None:
        if not (examples := run.summary.get("examples", {}).get("train")):
            return f"cannot be told: {run.logs} does not say how many examples an epoch has"
        steps = trainer.steps_of(examples)
    seconds = steps * trainer.global_batch_size / pace
    text = (
        f"about {duration(seconds)} of training: {steps:,} steps of {trainer.global_batch_size:,} examples, at the "
        f"{pace:,.0f} examples/s of {run.logs}"
    )
    others = [each for each in run.summary.get("components", ()) if each["node"] != _TRAINER]
    if others and all(each["state"] == _RAN for each in others):
        text += f"; the other steps took {duration(sum(each['seconds'] for each in others))} there"
    if declaration.tune is not None:
        text += "; without the trials of `tune`"
    return text + "; on machines as fast as that run's"


def _of_spec(spec: dict[str, Any]) -> Iterator[Row]:
    for task in read_spec(spec, {}).tasks:
        if (container := task.container) is None:
            continue  # a resolver runs nowhere
        wanted = container.get("resources", {})
        kind = wanted.get("accelerator", {})
        memory = wanted.get("memoryLimit")
        amounts = _amounts(wanted.get("cpuLimit"), f"{memory:g} GB" if memory else "")
        yield Row(task.name, amounts, _accelerator(kind.get("type"), kind.get("count")), container["image"])
        if told := task.given("parameters").get(PLAN_KEY):
            for role, pool in Plan.from_json(told["runtimeValue"]["constant"]).pools.items():
                kind = pool["machine_spec"]
                accelerator = _accelerator(kind.get("accelerator_type"), kind.get("accelerator_count"))
                yield Row(f"  {pool['replica_count']} {role}", kind["machine_type"], accelerator, container["image"])


def _of_workflow(workflow: dict[str, Any]) -> Iterator[Row]:
    templates = {template["name"]: template for template in workflow["spec"]["templates"]}
    tasks = {task["name"]: task for task in templates[workflow["spec"]["entrypoint"]]["dag"]["tasks"]}
    upstream = {name: sorted(tasks[name].get("dependencies", ())) for name in sorted(tasks)}
    for name in graphlib.TopologicalSorter(upstream).static_order():
        container = templates[tasks[name]["template"]]["container"]
        # Shows the name that the declaration uses in deploy.nodes; Argo's own is in lower case.
        yield _row(container["args"][container["args"].index("--node_id") + 1], container)
        if (job := _tfjob_of(container["args"])) is not None:
            yield from (row._replace(step=f"  {row.step}") for row in _of_pods(job))


def _tfjob_of(arguments: Sequence[str]) -> Optional[dict[str, Any]]:
    """Makes the TFJob that a step will start; None of one that starts none."""
    (node,) = json.loads(arguments[arguments.index("--tfx_ir") + 1])["nodes"]
    told = node["pipelineNode"].get("parameters", {}).get("parameters", {})
    if SETTINGS_KEY not in told:
        return None
    settings = Settings.of({key: told[key]["fieldValue"]["stringValue"] for key in (SETTINGS_KEY, OPERATION_KEY)})
    if not tfjob.is_wanted(settings):
        return None
    return make_manifest("", tfjob.deploy_of(settings), settings.distribution.resolved(), ())


def _of_pods(job: dict[str, Any]) -> Iterator[Row]:
    replicas = job["spec"]["tfReplicaSpecs"]
    for kind in filter(replicas.get, _PODS):
        (container,) = replicas[kind]["template"]["spec"]["containers"]
        yield _row(f"{replicas[kind]['replicas']} {kind.lower()}", container)


def _row(name: str, container: dict[str, Any]) -> Row:
    limits = dict(container.get("resources", {}).get("limits", {}))
    cores, memory = (limits.pop(key, None) for key in (_CORES, _MEMORY))
    # The units that this project writes: thousandths of CPUs, and 10^6 bytes.
    amounts = _amounts(
        float(str(cores).removesuffix("m")) / 1000 if cores else None,
        f"{float(str(memory).removesuffix('M')) / 1000:g} GB" if memory else "",
    )
    kinds = ", ".join(_accelerator(kind, count) for kind, count in limits.items())
    return Row(name, amounts, kinds, container["image"])


def _amounts(cores: Any, memory: str) -> str:
    return ", ".join(filter(None, (f"{cores:g} CPUs" if cores else "", memory))) or _OWN


def _accelerator(kind: Any, count: Any) -> str:
    return f"{int(count or 1)} {kind}" if kind else ""


def _measured(declaration: Declaration, runs: str) -> Optional[Run]:
    """Finds the latest run that has trained this model."""
    folder = os.path.join(os.path.expanduser(runs), declaration.name, "logs")
    for logs in reversed(log_folders(folder)):
        try:
            run = read_run(logs)
        except (OSError, ValueError):
            continue
        same = all(
            _same(run.values.get(f"trainer.{key}"), getattr(declaration.trainer, key))
            for key in ("model", "module_file")
        )
        pace = run.summary.get("training", {}).get(_PACE)
        if same and isinstance(pace, (int, float)) and pace > 0:
            return run
    return None


def _same(measured: object, wanted: Optional[str]) -> bool:
    # A module file may lie elsewhere by now.
    return os.path.basename(str(measured)) == os.path.basename(str(wanted))
