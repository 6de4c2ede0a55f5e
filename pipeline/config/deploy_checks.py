"""Checks of the section `deploy`, and of whether a declaration can run where it is to be deployed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Optional, Union

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.base.targets import ALL_TARGETS, KUBEFLOW, KUBEFLOW_V2, SPEC_TARGETS, TFJOB, VERTEX
from tfx_estimator.pipeline.config.account_notes import note_accounts
from tfx_estimator.pipeline.config.beam_deploy_checks import check_deployed_beam
from tfx_estimator.pipeline.config.credentials import check_credentials
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.deploy import DeploySection, Node
from tfx_estimator.pipeline.config.env_checks import check_env, check_key_file
from tfx_estimator.pipeline.config.gpu_checks import note_machines
from tfx_estimator.pipeline.config.image_checks import PINNED, check_image, note_image
from tfx_estimator.pipeline.config.paths import OF_THIS_MACHINE, OTHER_STORE, is_address, is_path
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.security_context import find_idle_context, note_context
from tfx_estimator.pipeline.config.tfjob import note_restarts
from tfx_estimator.pipeline.config.tfjob_checks import check_step_that_launches
from tfx_estimator.pipeline.config.vertex import Machine, check_vertex_job

_OF_VERTEX, _OF_KUBEFLOW = re.compile(r"[A-Z][A-Z0-9_]+"), re.compile(r"[a-z0-9.-]+/[A-Za-z0-9._-]+")
_GS = "gs://"
_IN_THE_CLUSTER = "which in many clusters may read no bucket"
_DEFAULT_ACCOUNTS = {
    VERTEX: "the project's default, NUMBER-compute@developer.gserviceaccount.com: it needs the image and the bucket",
    KUBEFLOW: f"Kubeflow Pipelines' own, pipeline-runner, {_IN_THE_CLUSTER}",
    KUBEFLOW_V2: f"Kubeflow Pipelines' own, pipeline-runner, {_IN_THE_CLUSTER}",
    TFJOB: f"the namespace's, default, {_IN_THE_CLUSTER}",
}
_RESOURCES = ("cpu", "memory_gb", "accelerator", "accelerators", "node_selector", "tolerations")


def check_stack(target: str) -> None:
    """Checks that the installed TFX compiles for a target at all.

    Args:
        target: One of `targets.ALL_TARGETS`; empty if it runs on this machine.

    Raises:
        DeclarationError: It does not.
    """
    # Which is asked last: it takes a while.
    if target == KUBEFLOW and (here := stacks.installed()) and not here.has_argo:
        raise DeclarationError(
            f"--target {KUBEFLOW}: TFX {here.tfx} has no Kubeflow Pipelines 1, which takes an Argo Workflow",
            expected=f"another target: {', '.join(each for each in ALL_TARGETS if each != KUBEFLOW)}",
            todo=f"compile for {KUBEFLOW_V2}; or install the stack {stacks.LEGACY.name}: make install "
            f"STACK={stacks.LEGACY.name}",
        )


def check_deploy(declaration: Declaration) -> Iterator[Problem]:
    """Checks what holds wherever it is deployed."""
    deploy = declaration.deploy
    if deploy is None:
        return
    if deploy.image is not None:
        yield from check_image(deploy.image)
    yield from check_env(deploy)
    if deploy.vertex is not None:
        yield from check_vertex_job(deploy.vertex, declaration.trainer.distribution)
    for name, node in deploy.nodes.declared():
        if node.accelerators and not deploy.nodes.of(name).accelerator:
            todo = f"add `accelerator:` under `deploy.nodes.{name}`"
            yield Problem(
                f"deploy.nodes.{name}.accelerators", "the type of accelerator is missing", "accelerator: KIND", todo
            )


def check_deployment(declaration: Declaration, target: str) -> Iterator[Problem]:
    """Finds everything that is missing, or stays behind, when the pipeline runs somewhere else.

    Args:
        target: One of `targets.ALL_TARGETS`.

    Yields:
        The problems, each with what to do.
    """
    deploy = declaration.deploy or DeploySection()
    wanted = {"image": (PINNED, "build the image with this tfx-estimator in it, push it, and name its digest")}
    if target == VERTEX:
        wanted["project"] = ("the ID of a Google Cloud project", "name one in which Vertex AI is enabled")
        wanted["region"] = ("a region of Vertex AI: europe-west4", "name the region of the bucket")
    for key, (expected, todo) in wanted.items():
        if getattr(deploy, key) is None:
            yield Problem(f"deploy.{key}", f"the target {target} needs it", expected, f"{todo}: deploy.{key}")
    yield from _root(deploy, target, alone=declaration.trainer.distribution.pods == {"chief": 1})
    yield from _places(declaration, deploy, target)
    yield from check_deployed_beam(declaration.beam, deploy)
    yield from check_key_file(deploy, target)
    yield from check_credentials(declaration.trainer.params, declaration.beam.options, deploy)
    if declaration.tune is not None and target == TFJOB:
        what, expected = "a TFJob's pods train one model, and no trials", "the values that a tuning chose"
        yield Problem("tune", what, expected, "tune elsewhere first, and write its best values down")
    yield from _unfit(deploy, target)


def find_idle(declaration: Declaration, declared: Sequence[str], target: str) -> Iterator[tuple[str, str]]:
    """Finds what is said of steps, and reaches none, or one that does nothing with it.

    Args:
        target: Where it is to be deployed; empty if it runs on this machine.

    Yields:
        A dotted path, and what to say of it.
    """
    deploy = declaration.deploy
    if deploy is None or not target:
        return
    for name, node in deploy.nodes.declared():
        keys = [f"deploy.nodes.{name}.{key}" for key in _resources_of(node)]
        # Of a mapping, the single items are declared.
        paths = {key: path for key in keys for path in declared if f"{path}.".startswith(f"{key}.")}
        if not paths:
            continue
        what = ""
        if target == VERTEX and deploy.vertex is not None and name == "Trainer":
            what = "of the step, which only waits for the custom job; deploy.vertex names what trains"
        elif target == TFJOB and name not in ("default", "Trainer"):
            what = "no effect: a TFJob's chief runs every step, with the resources of deploy.tfjob.replicas.chief"
        elif name == "Tuner" and declaration.tune is None:
            what = "no effect: there is no section `tune`"
        if what:
            yield next(iter(paths.values())), f"{', '.join(paths)}: {what}"
    yield from find_idle_context(deploy, declared, target)


def note_deployment(declaration: Declaration, target: str) -> Iterator[str]:
    """Says what is right, and should be known before it is deployed.

    Args:
        target: Where it is to be deployed; empty if it runs on this machine.
    """
    if target:
        yield from _note_default(declaration.deploy, target)
        if declaration.deploy is None or declaration.deploy.service_account is None:
            yield f"deploy.service_account is null: the steps run as {_DEFAULT_ACCOUNTS[target]}"
        if declaration.deploy is not None:
            yield from note_image(declaration.deploy.image or "", target)
            yield from note_context(declaration.deploy, target)
            yield from note_restarts(declaration.deploy.tfjob, target)
        yield from note_accounts(declaration, target)
        yield from note_machines(declaration, target)
        if target == KUBEFLOW and declaration.deploy is not None and declaration.deploy.tfjob.train:
            yield "deploy.tfjob.train: the step Trainer starts a TFJob: its account needs the Role in docs/kubeflow.md"
        yield from _note_quota(declaration, target)


def _note_default(deploy: Optional[DeploySection], target: str) -> Iterator[str]:
    """Says where `nodes.default` has no effect: on a training with machines of its own."""
    if target == VERTEX and deploy and deploy.vertex is not None and (keys := _resources_of(deploy.nodes.default)):
        paths = ", ".join(f"deploy.nodes.default.{key}" for key in keys)
        yield (
            f"{paths}: no effect on the training, whose machines deploy.vertex names, nor on the step Trainer, which "
            "only waits for it"
        )


def _note_quota(declaration: Declaration, target: str) -> Iterator[str]:
    """Says which machines of Vertex AI training wants at once: a project's own quota may hold none of them."""
    deploy = declaration.deploy
    if target != VERTEX or deploy is None:
        return
    if deploy.vertex is not None:
        machines = deploy.vertex.machines(declaration.trainer.distribution).values()
        wanted = [f"{count} {each.machine_type}{_with(each)}" for count, each in machines]
    else:
        nodes = [deploy.step(name) for name in deploy.nodes.__fields__ if name != "default"]
        wanted = list(dict.fromkeys(f"a machine{_with(node)}" for node in nodes if node.accelerator))
    if wanted:
        kind = " preemptible" if deploy.vertex is not None and deploy.vertex.scheduling != "standard" else ""
        yield (
            f"quota: {', '.join(wanted)}: see in Google Cloud's IAM & Admin, Quotas, that those of Custom model "
            f"training{kind} in {deploy.region or 'its region'} allow it; a project has often none of an accelerator"
        )


def _with(machine: Union[Machine, Node]) -> str:
    return f" with {machine.accelerators or 1} {machine.accelerator}" if machine.accelerator else ""


def _resources_of(node: Node) -> list[str]:
    return [key for key in _RESOURCES if getattr(node, key) is not None]


def _root(deploy: DeploySection, target: str, alone: bool) -> Iterator[Problem]:
    root, path = deploy.pipeline_root, "deploy.pipeline_root"
    mounted = "a folder in one of deploy.volumes that is not read_only"
    expected = {
        VERTEX: "gs://BUCKET/FOLDER",
        KUBEFLOW: f"gs://BUCKET/FOLDER, or {mounted}",
        KUBEFLOW_V2: "gs://BUCKET/FOLDER",
        TFJOB: f"gs://BUCKET/FOLDER, or {mounted}" if alone else mounted,
    }[target]
    if root is None:
        yield Problem(path, f"the target {target} needs it", expected, "name a folder that the steps can write")
    elif (root.startswith(_GS) and (target != TFJOB or alone)) or (
        target in (KUBEFLOW, TFJOB) and deploy.is_mounted(root, writable=True)
    ):
        return
    elif target == TFJOB and root.startswith(_GS):
        what, todo = "the pods of its cluster meet in files there, which no bucket holds", "name a folder in a volume"
        yield Problem(path, what, expected, todo, value=root, depends=("trainer.distribution",))
    elif target == VERTEX:
        yield Problem(path, "Vertex AI keeps artifacts in Cloud Storage only", expected, "name a bucket", value=root)
    else:
        yield Problem(path, _unreached(root), expected, "name a place that every step reaches", value=root)


def _unreached(path: str) -> str:
    """Says why no step reads or writes there."""
    return OTHER_STORE if is_address(path) else OF_THIS_MACHINE


def _places(declaration: Declaration, deploy: DeploySection, target: str) -> Iterator[Problem]:
    data = declaration.data
    expected = "gs://BUCKET/FOLDER"
    if target != VERTEX:
        expected += ", or a folder in one of deploy.volumes"
    places = {
        "data.dataset": data.dataset if is_path(data.dataset) else None,
        "data.data_dir": data.data_dir,
        "pusher.destination": declaration.pusher.destination,
    }
    for path, value in places.items():
        writable = path == "pusher.destination"
        if value is None or value.startswith(_GS) or deploy.is_mounted(value, writable):
            continue
        todo = f"copy it there, and name that: --set {path}=gs://…"
        if path == "pusher.destination":
            todo = "name where models are served from; null is `serving` below the pipeline root"
        yield Problem(path, _unreached(value), expected, todo, value=value)
    if declaration.trainer.warm_start is not None:
        what, todo = "weights of another training are read from this machine only, in this version", "remove it"
        yield Problem("trainer.warm_start", what, "a training that begins with weights of its own", todo)
    if data.data_dir is None and not data.download and not is_path(data.dataset) and data.dataset != "digits":
        what = "TFDS's own default is a folder of the container, which is empty, and data.download is false"
        todo = "prepare the data set there, and name it: --set data.data_dir=gs://…"
        yield Problem("data.data_dir", what, expected, todo, depends=("data.download",))


def _unfit(deploy: DeploySection, target: str) -> Iterator[Problem]:
    yield from check_step_that_launches(deploy, target)
    account = deploy.service_account
    if account is not None and ("@" in account) != (target == VERTEX):
        what, expected = f"this is no account of the target {target}", "the name of a ServiceAccount of the cluster's"
        if target == VERTEX:
            expected = "an address: NAME@PROJECT.iam.gserviceaccount.com"
        yield Problem("deploy.service_account", what, expected, "correct it", value=account)
    if target == KUBEFLOW_V2 and any(volume.read_only for volume in deploy.volumes):
        what, todo = "Kubeflow Pipelines 2 mounts every volume so that steps may write there", "remove read_only"
        yield Problem("deploy.volumes", what, "read_only: false", todo)
    if target != VERTEX and deploy.vertex is not None:
        what, todo = f"the target {target} has no custom jobs", "remove it, or compile for vertex"
        yield Problem("deploy.vertex", what, "null", todo)
    if target == VERTEX:
        for key in ("volumes", "secrets"):
            if getattr(deploy, key):
                todo = "remove it, or deploy elsewhere"
                yield Problem(
                    f"deploy.{key}", "Vertex AI has none", "an object store, and deploy.service_account", todo
                )
    for name, node in deploy.nodes.declared():
        path = f"deploy.nodes.{name}"
        if node.timeout_seconds is not None and target in SPEC_TARGETS:
            what = "a compiled PipelineSpec has no deadline of a step"
            expected, todo = "trainer.start_timeout and trainer.stall_timeout, for the training", "remove it"
            yield Problem(f"{path}.timeout_seconds", what, expected, todo, value=str(node.timeout_seconds))
        for key in ("node_selector", "tolerations"):
            if getattr(node, key) and target == VERTEX:
                what, expected = "Vertex AI has no nodes of yours, nor taints", "the machines of deploy.vertex, or none"
                yield Problem(f"{path}.{key}", what, expected, "remove it, or deploy elsewhere")
        if target == TFJOB:
            for key, instead in (("timeout_seconds", "active_deadline_seconds"), ("retries", "backoff_limit")):
                if (value := getattr(node, key)) is not None:
                    what, expected = "a TFJob has one for all, and no steps", f"deploy.tfjob.{instead}"
                    yield Problem(f"{path}.{key}", what, expected, f"name it there: {expected}", value=str(value))
        pattern = _OF_VERTEX if target == VERTEX else _OF_KUBEFLOW
        if node.accelerator is not None and not pattern.fullmatch(node.accelerator):
            expected = "as NVIDIA_TESLA_T4" if target == VERTEX else "a resource of Kubernetes, as nvidia.com/gpu"
            what = f"this is no accelerator of the target {target}"
            yield Problem(f"{path}.accelerator", what, expected, "correct it", value=node.accelerator)
