"""Checks of the section `deploy`, and of whether a declaration can run where it is to be deployed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.base.targets import ALL_TARGETS, KUBEFLOW, KUBEFLOW_V2, SPEC_TARGETS, TFJOB, VERTEX
from tfx_estimator.pipeline.config.credentials import check_credentials
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.config.gpu_checks import check_gpus, note_machines
from tfx_estimator.pipeline.config.paths import OF_THIS_MACHINE, OTHER_STORE, is_address, is_path
from tfx_estimator.pipeline.config.problems import Problem

_PINNED = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")
_AN_IMAGE = "REGISTRY/NAME@sha256:…, 64 hexadecimal digits"
# What a custom job of Vertex AI calls an accelerator, and what Kubernetes does.
_OF_VERTEX = re.compile(r"[A-Z][A-Z0-9_]+"), "NVIDIA_TESLA_T4"
_OF_KUBERNETES = re.compile(r"[a-z0-9.-]+/[A-Za-z0-9._-]+"), "nvidia.com/gpu"
_GS = "gs://"
_RESOURCES = ("cpu", "memory_gb", "accelerator", "accelerators", "node_selector", "tolerations")
# Target -> key of a step -> why the target has no such thing, and what to say in its place.
_NO_DEADLINE = {"timeout_seconds": ("a PipelineSpec has no deadline of a step", "trainer.stall_timeout")}
_NO_NODES = ("Vertex AI has no nodes of yours, nor taints", "the machines of deploy.vertex")
_NO_STEPS = "a TFJob has one for all, and no steps"
_NOT_OF_STEPS = {
    VERTEX: {**_NO_DEADLINE, "node_selector": _NO_NODES, "tolerations": _NO_NODES},
    KUBEFLOW_V2: _NO_DEADLINE,
    TFJOB: {
        "timeout_seconds": (_NO_STEPS, "deploy.tfjob.active_deadline_seconds"),
        "retries": (_NO_STEPS, "deploy.tfjob.backoff_limit"),
    },
}
_NO_PODS = {
    VERTEX: "Vertex AI has no pods of yours",
    KUBEFLOW_V2: "a PipelineSpec has no field for it; the cluster's own settings hold, see docs/kubeflow.md",
}


def check_stack(target: str) -> None:
    """Checks that the installed TFX compiles for a target at all."""
    # Which is asked last: it takes a while.
    if target == KUBEFLOW and (here := stacks.installed()) and not here.has_argo:
        raise DeclarationError(
            f"--target {KUBEFLOW}: TFX {here.tfx} has no Kubeflow Pipelines 1, which takes an Argo Workflow",
            expected=f"another target: {', '.join(each for each in ALL_TARGETS if each != KUBEFLOW)}",
            todo=f"compile for {KUBEFLOW_V2}; or install the stack {stacks.LEGACY.name}: make install "
            f"STACK={stacks.LEGACY.name}",
        )


def check_deploy(declaration: Declaration, target: str) -> Iterator[Problem]:
    """Checks the section, and finds everything that is missing, or stays behind, when the pipeline runs elsewhere."""
    deploy = declaration.deploy or DeploySection()
    if deploy.image is not None and not _PINNED.fullmatch(deploy.image):
        what = "the image is not pinned by its digest: what a tag names changes"
        todo = "docker inspect --format '{{index .RepoDigests 0}}' IMAGE says it"
        yield Problem("deploy.image", what, _AN_IMAGE, todo, value=deploy.image)
    yield from _machines(declaration, deploy, target)
    yield from _tfjob(declaration, deploy, target)
    yield from check_gpus(declaration, target)
    if target or deploy.tfjob.train:
        yield from check_credentials(declaration, deploy)
    if not target:
        return
    wanted = {"image": _AN_IMAGE}
    if target == VERTEX:
        wanted |= {"project": "the ID of a Google Cloud project", "region": "the region of the bucket: europe-west4"}
    for key, expected in wanted.items():
        if getattr(deploy, key) is None:
            yield Problem(f"deploy.{key}", f"the target {target} needs it", expected, f"name it: deploy.{key}")
    yield from _root(deploy, target, alone=declaration.trainer.distribution.pods == {"chief": 1})
    yield from _places(declaration, deploy, target)
    yield from _not_there(deploy, target)


def find_idle(declaration: Declaration, declared: Sequence[str], target: str) -> Iterator[tuple[str, str]]:
    """Finds what is said of steps, and reaches none, or one that does nothing with it."""
    deploy = declaration.deploy
    if deploy is None or not target:
        return
    why = {}
    for name, _ in deploy.nodes.sections():
        if target == VERTEX and deploy.vertex is not None and name == "Trainer":
            why[name] = "the step only waits for the custom job; deploy.vertex names what trains"
        elif target == TFJOB and name not in ("default", "Trainer"):
            why[name] = "a TFJob's chief runs every step, with the resources of deploy.tfjob.replicas.chief"
        elif name == "Tuner" and declaration.tune is None:
            why[name] = "there is no section `tune`"
    places = {tuple(f"deploy.nodes.{name}.{key}" for key in _RESOURCES): what for name, what in why.items()}
    if target in _NO_PODS:
        places["deploy.security_context.",] = _NO_PODS[target]
    for beginnings, what in places.items():
        if paths := [path for path in declared if path.startswith(beginnings)]:
            yield paths[0], f"{', '.join(paths)}: no effect: {what}"


def note_deployment(declaration: Declaration, target: str) -> Iterator[str]:
    """Says what is right, and should be known before it is deployed."""
    if not target:
        return
    job = (declaration.deploy or DeploySection()).tfjob
    if target == TFJOB and job.restart_policy == "ExitCode" and job.active_deadline_seconds is None:
        yield (
            "deploy.tfjob.active_deadline_seconds is null: the operator starts pods that are killed, as out of memory, "
            "again without end; only who follows (submit --follow, or --attach) ends the TFJob after backoff_limit"
        )
    if target == KUBEFLOW_V2 and declaration.beam.runner == "dataflow":
        yield (
            "beam.runner is dataflow: a run that is cancelled leaves its Dataflow job at work, for Kubeflow "
            "Pipelines 2 tells the step nothing: cancel it yourself, see docs/dataflow.md"
        )
    yield from note_machines(declaration, target)


def _machines(declaration: Declaration, deploy: DeploySection, target: str) -> Iterator[Problem]:
    """Checks accelerators, and that there are processes for the machines of each role."""
    job, there = deploy.vertex, declaration.trainer.distribution.pods
    rows: list[tuple[str, Any, Any, str]] = []
    for name, node in deploy.nodes.sections():
        rows.append((f"deploy.nodes.{name}", node, deploy.nodes.of(name).accelerator, target))
    for name, replica in deploy.tfjob.replicas.sections():
        rows.append((f"deploy.tfjob.replicas.{name}", replica, replica.accelerator, TFJOB))
    if job is not None:
        for name, machine in job.sections():
            rows.append((f"deploy.vertex.{name}", machine, machine.accelerator or job.machine.accelerator, VERTEX))
    for path, machine, accelerator, where in rows:
        role = path.rpartition(".")[2]
        if role in ("worker", "ps", "evaluator") and role not in there and machine != type(machine)():
            has = ", ".join(f"{count} {kind}" for kind, count in there.items())
            what, todo = f"trainer.distribution has no {role}: it has {has}", "remove it, or declare such processes"
            yield Problem(path, what, "types that there are", todo, depends=("trainer.distribution",))
        if machine.accelerators and not accelerator:
            todo = f"add `accelerator:` under `{path}`"
            yield Problem(f"{path}.accelerators", "the type of accelerator is missing", "accelerator: KIND", todo)
        pattern, example = _OF_VERTEX if where == VERTEX else _OF_KUBERNETES
        if where and machine.accelerator is not None and not pattern.fullmatch(machine.accelerator):
            what = f"this is no accelerator of the target {where}"
            yield Problem(f"{path}.accelerator", what, f"as {example}", "correct it", value=machine.accelerator)


def _tfjob(declaration: Declaration, deploy: DeploySection, target: str) -> Iterator[Problem]:
    """Checks what no TFJob is made of, and what one cannot train."""
    job, path, distribution = deploy.tfjob, "deploy.tfjob", declaration.trainer.distribution
    # Servers wait for more work until they are ended.
    if job.clean_pod_policy == "None" and distribution.train.asynchronous:
        what = "parameter servers never end by themselves, and would stay, and cost, after the training"
        yield Problem(
            f"{path}.clean_pod_policy", what, "Running or All", "remove the line for the default", value="None"
        )
    if target != TFJOB and not job.train:
        return
    if distribution.pods == {"chief": 1, "evaluator": 1}:
        # TensorFlow's chief does not see it: it is not in TF_CONFIG's cluster.
        what, todo = "an evaluator beside a lone chief is not seen by it", "set it to false: the chief then evaluates"
        yield Problem("trainer.distribution.evaluator", what, "false, or 2 workers", todo, value="true")
    if declaration.tune is not None:
        what, todo = "a TFJob's pods train one model, and no trials", "tune elsewhere first, and write down its values"
        yield Problem("tune", what, "the values that a tuning chose", todo, depends=(f"{path}.train",))
    if target == TFJOB:
        files = [each.module_file or "" for each in (declaration.transform, declaration.trainer)]
        if len(set(files)) > 1 and os.path.basename(files[0]) == os.path.basename(files[1]):
            what, todo = "two module files of one name: both travel in one ConfigMap", "rename the file"
            value, other = os.path.basename(files[1]), ("transform.module_file",)
            yield Problem("trainer.module_file", what, "names that differ", todo, value=value, depends=other)
        return
    depends = (f"{path}.train",)
    if deploy.image is None and not target:
        yield Problem(
            "deploy.image", "the pods of the TFJob need it", _AN_IMAGE, "name it: deploy.image", depends=depends
        )
    if all(volume.read_only for volume in deploy.volumes):
        what, expected = "the pods need the work folder, and no volume has it", "one that is not read_only"
        todo = "name its PersistentVolumeClaim, and mount it at the same path as here: {claim: NAME, path: /mnt/work}"
        yield Problem("deploy.volumes", what, expected, todo, depends=depends)
    if target in SPEC_TARGETS:
        what = f"the Trainer trains in a step of the target {target}, whose artifacts lie in a bucket"
        expected = f"false: it is for `run`, and for the target {KUBEFLOW}"
        yield Problem(f"{path}.train", what, expected, "set it to false", value="true")
    elif target and (root := deploy.pipeline_root) and is_address(root):
        what = "the step Trainer and the pods of its TFJob share the training's folder, which is below it"
        todo = f"name a folder in a volume, or set {path}.train to false"
        yield Problem(
            "deploy.pipeline_root", what, "a folder in one of deploy.volumes", todo, value=root, depends=depends
        )
    if target and job.context is not None:
        what = "the step Trainer asks the cluster that it is a pod of, and has no kubeconfig"
        yield Problem(f"{path}.context", what, "null", "remove it", value=job.context, depends=depends)


def _root(deploy: DeploySection, target: str, alone: bool) -> Iterator[Problem]:
    root, in_bucket, in_volume = deploy.pipeline_root, target != TFJOB or alone, target in (KUBEFLOW, TFJOB)
    expected = ["gs://BUCKET/FOLDER"] * in_bucket + ["a folder in one of deploy.volumes, not read_only"] * in_volume
    if root is None:
        what = f"the target {target} needs it"
    elif (in_bucket and root.startswith(_GS)) or (in_volume and deploy.is_mounted(root, writable=True)):
        return
    elif root.startswith(_GS):
        what = "the pods of its cluster meet in files there, which no bucket holds"
    else:
        what = _unreached(root)
    depends = ("trainer.distribution",) if target == TFJOB else ()
    todo = "name a folder that every step can write"
    yield Problem("deploy.pipeline_root", what, ", or ".join(expected), todo, value=root or "", depends=depends)


def _places(declaration: Declaration, deploy: DeploySection, target: str) -> Iterator[Problem]:
    data = declaration.data
    expected = "gs://BUCKET/FOLDER" + ("" if target == VERTEX else ", or a folder in one of deploy.volumes")
    places = {
        "data.dataset": (data.dataset if is_path(data.dataset) else None, "copy it there"),
        "data.data_dir": (data.data_dir, "copy it there"),
        "pusher.destination": (declaration.pusher.destination, "null is `serving` below the pipeline root"),
    }
    for path, (value, todo) in places.items():
        mounted = value is not None and deploy.is_mounted(value, writable=path == "pusher.destination")
        if value is not None and not value.startswith(_GS) and not mounted:
            yield Problem(path, _unreached(value), expected, f"{todo}; --set {path}=gs://…", value=value)
    if declaration.trainer.warm_start is not None:
        what, expected = "weights of another training are read from this machine only", "weights of its own"
        yield Problem("trainer.warm_start", what, expected, "remove it")


def _unreached(path: str) -> str:
    """Says why no step reads or writes there."""
    return OTHER_STORE if is_address(path) else OF_THIS_MACHINE


def _not_there(deploy: DeploySection, target: str) -> Iterator[Problem]:
    """Finds what the target has no word for, and would do without."""
    if target != VERTEX and deploy.vertex is not None:
        what = f"the target {target} has no custom jobs"
        yield Problem("deploy.vertex", what, "null", "remove it, or compile for vertex")
    for key in ("volumes", "secrets") if target == VERTEX else ():
        if getattr(deploy, key):
            expected, todo = "an object store, and deploy.service_account", "remove it, or deploy elsewhere"
            yield Problem(f"deploy.{key}", "Vertex AI has none", expected, todo)
    if target == KUBEFLOW_V2 and any(volume.read_only for volume in deploy.volumes):
        what = "Kubeflow Pipelines 2 mounts every volume so that steps may write there"
        yield Problem("deploy.volumes", what, "read_only: false", "remove read_only")
    for name, node in deploy.nodes.sections():
        for key, (what, instead) in _NOT_OF_STEPS.get(target, {}).items():
            if (value := getattr(node, key)) not in (None, (), {}):
                shown = str(value) if isinstance(value, int) else ""
                yield Problem(f"deploy.nodes.{name}.{key}", what, instead, "say it there, or remove it", value=shown)
