"""Rules for training jobs: as a target, and for `deploy.trainjob.train`."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from typing import Any, Optional

from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.deploy import Accelerated, DeploySection, Machine, Node, Nodes, gpus
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.pod_patch import as_list
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.rules.rule import Case, Rule, given
from tfx_estimator.pipeline.config.yaml_text import inline
from tfx_estimator.pipeline.platforms.registry import KUBEFLOW, POD_TARGETS, TFJOB, TRAINJOB
from tfx_estimator.pipeline.user_source.pack import Packed

# Keys of the ConfigMap. A wheel's own name may contain `+`, which a key must not.
DECLARATION, MODULES = "declaration.yaml", "modules.whl"
# Limit of a ConfigMap's contents, in base64; the API server refuses more than 1 MiB.
MOST_BYTES = 900_000


def _of_one_name(case: Case) -> Any:
    files = [each.module_file or "" for each in (case.declaration.transform, case.trainer)]
    name = os.path.basename(files[1])
    return files[0] != files[1] and os.path.basename(files[0]) == name and {"value": name}


_TRAIN = "deploy.trainjob.train"
# For a step of Kubeflow Pipelines that trains in a TrainJob.
_OF_STEP = (
    Rule(
        _TRAIN,
        lambda case: not case.platform.trains_in_pods,
        "the Trainer trains in a step of the target {target}",
        "set it to false",
        f"false: it is for the target {KUBEFLOW}",
    ),
    Rule(
        "deploy.trainjob.kind",
        lambda case: case.target == KUBEFLOW and case.deploy.trainjob.kind != "TrainJob",
        "a step of Kubeflow Pipelines starts TrainJobs alone",
        f"set it to TrainJob, or run the whole pipeline in a JobSet: --target {TRAINJOB}",
        "TrainJob",
        (_TRAIN,),
    ),
    Rule(
        "deploy.training_root",
        lambda case: case.target == KUBEFLOW and not case.deploy.is_mounted(case.deploy.training_root or "", True),
        "the step Trainer and the pods share the training's folder, which no bucket holds",
        "name a folder of its own for it, and mount the volume: {{claim: NAME, path: /mnt/work}}",
        "a folder in one of deploy.volumes",
        (_TRAIN,),
    ),
    Rule(
        "deploy.trainjob.context",
        lambda case: case.target == KUBEFLOW and case.deploy.trainjob.context is not None,
        "the step Trainer uses the cluster that it runs in, and has no kubeconfig",
        "remove it",
        "null",
        (_TRAIN,),
    ),
)


def _trains_in_pods(case: Case) -> bool:
    return case.target in POD_TARGETS or (case.deploy.trainjob.train and case.platform.trains_in_pods)


RULES = (
    *given(
        _trains_in_pods,
        Rule(
            "trainer.distribution.evaluator",
            # TensorFlow's chief does not know of it: it is not in TF_CONFIG's cluster.
            lambda case: case.trainer.distribution.pods == {"chief": 1, "evaluator": 1},
            "a chief without workers does not know of an evaluator",
            "set it to false: the chief then evaluates",
            "false, or 2 workers",
        ),
        Rule(
            "tune",
            lambda case: case.declaration.tune is not None,
            "the pods train one model, and no trials",
            "tune elsewhere first, and declare the values that it chose",
            "the values that a tuning chose",
        ),
    ),
    *given(
        lambda case: case.target in POD_TARGETS,
        Rule(
            "trainer.module_file",
            _of_one_name,
            "two module files of one name: both are shipped in one ConfigMap",
            "rename the file",
            "names that differ",
            ("transform.module_file",),
        ),
        Rule(
            "deploy.nodes.{name}.retries",
            lambda case: [{"name": name} for name, node in case.deploy.nodes.sections() if node.retries],
            "the job has one for all, and no steps",
            "set it there, or remove it",
            "deploy.{target}.backoff_limit",
        ),
    ),
    *given(lambda case: case.deploy.trainjob.train and case.target not in ("", *POD_TARGETS), *_OF_STEP),
)


def note(case: Case) -> Iterator[str]:
    """Yields warnings before deployment."""
    job = case.deploy.tfjob
    if case.target == TFJOB and job.restart_policy == "ExitCode" and job.active_deadline_seconds is None:
        yield (
            "deploy.tfjob.active_deadline_seconds is null: the operator restarts killed pods, as after OOMKilled, "
            "without limit; only a follower (submit --follow, or --attach) ends the TFJob after backoff_limit"
        )
    pods = {"Trainer", *map(getattr(case.deploy, case.target or TRAINJOB).role, case.distribution.pods)}
    for patch in case.deploy.pod_patch:
        if patch.get("pods") and not pods & {*as_list(patch["pods"])}:
            yield f"deploy.pod_patch: pods: {inline(patch['pods'])} has no effect: they are {', '.join(sorted(pods))}"


def step(deploy: DeploySection, name: str) -> Node:
    """Returns the declared resources of a step."""
    return deploy.nodes.of(name)


def machines(deploy: DeploySection, distribution: Distribution, target: str) -> dict[str, Machine]:
    """Returns the machine of each role: its pods'."""
    job, trainer = getattr(deploy, target), deploy.nodes.of("Trainer")
    return {
        role: (
            f"each pod of {role}",
            f"deploy.{target}.replicas.{job.role(role)}",
            gpus(*job.accelerator(role, trainer)),
        )
        for role in distribution.pods
    }


def idle_steps(deploy: DeploySection, target: str) -> Iterator[tuple[str, str]]:
    """Yields steps whose resources have no effect, and why."""
    chief = f"deploy.{target}.replicas.{getattr(deploy, target).role('chief')}"
    yield from (
        (name, f"the chief runs every step, with the resources of {chief}")
        for name in Nodes.steps()
        if name != "Trainer"
    )


def accelerated(deploy: DeploySection) -> Iterator[Accelerated]:
    """Yields what may have accelerators."""
    for key in POD_TARGETS:
        for name, replica in getattr(deploy, key).replicas.sections():
            yield f"deploy.{key}.replicas.{name}", replica, replica.accelerator, key


def check_size(declaration: Declaration, modules: Optional[Packed], path: str, value: str) -> Iterator[Problem]:
    """Checks that the declaration and modules fit into a ConfigMap; `path` and `value` name the last module."""
    size = sum(len(text.encode()) for texts in contents(declaration, modules) for text in texts.values())
    if size > MOST_BYTES:
        what = f"your own modules and the declaration are {size:,} bytes, too many for a ConfigMap"
        todo = "install the modules as a package, in the image and here"
        yield Problem(path, what, f"at most {MOST_BYTES:,}", todo, value=value)


def contents(declaration: Declaration, modules: Optional[Packed]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the contents of the ConfigMap: its `data`, which is text, and its `binaryData`, in base64.

    Args:
        declaration: What to run; its module files exist.
    """
    data: dict[str, str] = {}
    binary: dict[str, str] = {}
    values = json.loads(declaration.to_json())
    values.pop("deploy")
    for section in (values["trainer"], values["transform"]):
        if (file := section["module_file"]) is not None:
            name = section["module_file"] = os.path.basename(file)
            with open(file, "rb") as source:
                code = source.read()
            try:
                data[name] = code.decode()
            except UnicodeDecodeError:
                # A source file may declare another encoding, as `coding: latin-1`.
                binary[name] = base64.b64encode(code).decode()
    data[DECLARATION] = Declaration.parse_obj(values).to_yaml()
    if modules:
        binary[MODULES] = base64.b64encode(modules.data).decode()
    return data, binary
