"""Checks of `deploy.tfjob`: what no TFJob is made of."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from tfx_estimator.pipeline.base.targets import KUBEFLOW, KUBEFLOW_V2, TFJOB
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.problems import Problem

_RESOURCE = re.compile(r"[a-z0-9.-]+/[A-Za-z0-9._-]+")


def check_tfjob(declaration: Declaration, target: str = "") -> Iterator[Problem]:
    """Checks what holds wherever a TFJob is meant.

    Args:
        target: Where the pipeline is to be deployed.
    """
    deploy = declaration.deploy
    if deploy is None:
        return
    job, path, distribution = deploy.tfjob, "deploy.tfjob", declaration.trainer.distribution
    counts = distribution.pods
    for name, replica in job.replicas.declared():
        where = f"{path}.replicas.{name}"
        if replica != type(replica)() and not counts.get(name):
            has = ", ".join(f"{count} {kind}" for kind, count in counts.items())
            todo = "remove it, or declare them in trainer.distribution"
            what = f"trainer.distribution has no {name}: the TFJob is of {has}"
            yield Problem(where, what, "types that there are", todo, depends=("trainer.distribution",))
        if replica.accelerators and not replica.accelerator:
            todo = f"add `accelerator:` under `{where}`"
            yield Problem(f"{where}.accelerators", "the type of accelerator is missing", "accelerator: KIND", todo)
        if replica.accelerator is not None and not _RESOURCE.fullmatch(replica.accelerator):
            what, expected = "this is no accelerator of Kubernetes", "its resource, as nvidia.com/gpu"
            yield Problem(f"{where}.accelerator", what, expected, "correct it", value=replica.accelerator)
    # Servers wait for more work until they are ended.
    if job.clean_pod_policy == "None" and distribution.train.asynchronous:
        what = "parameter servers never end by themselves, and would stay, and cost, after the training"
        todo = "remove the line for the default"
        yield Problem(f"{path}.clean_pod_policy", what, "Running or All", todo, value="None")
    if (target == TFJOB or job.train) and counts == {"chief": 1, "evaluator": 1}:
        # TensorFlow's chief does not see it: it is not in TF_CONFIG's cluster.
        what, todo = "an evaluator beside a lone chief is not seen by it", "set it to false: the chief then evaluates"
        yield Problem("trainer.distribution.evaluator", what, "false, or 2 workers", todo, value="true")
    if target == TFJOB:
        yield from _travels(declaration)
    if job.train:
        yield from _trains(declaration, deploy)


def check_step_that_launches(deploy: DeploySection, target: str) -> Iterator[Problem]:
    """Checks whether the Trainer's step of a compiled pipeline can train in a TFJob.

    Args:
        target: Where the pipeline is to be deployed.
    """
    path, root = "deploy.tfjob.train", deploy.pipeline_root
    if not deploy.tfjob.train or target == TFJOB:
        return
    if target != KUBEFLOW:
        what = f"the Trainer trains in a step of the target {target}"
        if target == KUBEFLOW_V2:
            what += ", whose artifacts lie in a bucket: a TFJob's pods and the step need a folder in a volume"
        expected = f"false: it is for `run`, and for the target {KUBEFLOW}"
        yield Problem(path, what, expected, "set it to false", value="true")
        return
    if root is not None and is_address(root):
        what = "the step Trainer and the pods of its TFJob share the training's folder, which is below it"
        expected = "a folder in one of deploy.volumes that is not read_only"
        todo = "name a folder in a volume, or set deploy.tfjob.train to false"
        yield Problem("deploy.pipeline_root", what, expected, todo, value=root, depends=(path,))
    if deploy.tfjob.context is not None:
        what = "the step Trainer asks the cluster that it is a pod of, and has no kubeconfig"
        yield Problem("deploy.tfjob.context", what, "null", "remove it", value=deploy.tfjob.context, depends=(path,))


def _travels(declaration: Declaration) -> Iterator[Problem]:
    """Checks that module files have names of their own in a ConfigMap."""
    files = {
        "transform.module_file": declaration.transform.module_file,
        "trainer.module_file": declaration.trainer.module_file,
    }
    todo, seen = "rename the file", dict[str, str]()
    for path, file in files.items():
        if file is None:
            continue
        name = os.path.basename(file)
        if seen.setdefault(name, file) != file:
            what, expected = "two module files of one name: both travel in one ConfigMap", "names that differ"
            yield Problem(path, what, expected, todo, value=name, depends=tuple(files))


def _trains(declaration: Declaration, deploy: DeploySection) -> Iterator[Problem]:
    path, depends = "deploy.tfjob.train", ("deploy.tfjob.train",)
    if deploy.image is None:
        expected = "REGISTRY/NAME@sha256:…, 64 hexadecimal digits"
        todo = "build the image with this tfx-estimator in it, push it, and name its digest: deploy.image"
        yield Problem("deploy.image", "the pods of the TFJob need it", expected, todo, depends=depends)
    if not any(not volume.read_only for volume in deploy.volumes):
        what = "the pods need the work folder, and no volume has it"
        todo = "name its PersistentVolumeClaim, and mount it at the same path as here: {claim: NAME, path: /mnt/work}"
        yield Problem("deploy.volumes", what, "a volume that is not read_only, around --workdir", todo, depends=depends)
    if declaration.tune is not None:
        what = "the Tuner's trials train on this machine only"
        todo = "tune first, without it: --set deploy.tfjob.train=false"
        yield Problem(path, what, "false beside `tune`", todo, value="true", depends=("tune",))
