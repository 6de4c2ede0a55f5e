"""Compiles a declaration into a training job: its chief runs the pipeline, the other pods its training."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.platforms.kubernetes import kubectl
from tfx_estimator.pipeline.platforms.rows import Row, row_of
from tfx_estimator.pipeline.platforms.training_jobs.kinds import NODE, PIPELINE, TF_JOB, TRAIN_JOB, Object
from tfx_estimator.pipeline.platforms.training_jobs.manifest import (
    CONFIG_FOLDER,
    job_name,
    kind_of,
    main_of,
    make_manifests,
    pods_of,
)
from tfx_estimator.pipeline.platforms.training_jobs.rules import DECLARATION, MODULES, contents
from tfx_estimator.pipeline.runners import entry
from tfx_estimator.pipeline.user_source.pack import Packed

# Labels that select the chief's pod of a JobSet, whose name has a random suffix.
_CHIEF = f"jobset.sigs.k8s.io/replicatedjob-name={NODE},batch.kubernetes.io/job-completion-index=0"


def compile_declaration(declaration: Declaration, target: str, modules: Optional[Packed]) -> list[dict[str, Any]]:
    """Compiles a declaration, for pods that find their cluster in TF_CONFIG.

    Args:
        target: The section of `deploy` that declares the job.
        modules: The user's own, shipped with the declaration in a ConfigMap; their size was checked when the
            declaration was loaded.

    Returns:
        The ConfigMap, further objects that the job needs, and the job.
    """
    deploy = declaration.deploy or DeploySection()
    data, binary = contents(declaration, modules)
    command = [
        *("tfx-estimator", "run", f"{CONFIG_FOLDER}/{DECLARATION}"),
        *("--workdir", deploy.pipeline_root or ""),
    ]
    if modules:
        command = [*entry.COMMAND, *entry.arguments(CONFIG_FOLDER, modules, command)]
    # The name has a digest: a restarted pod must not see another submission's ConfigMap.
    digest = hashlib.sha256(json.dumps([data, binary], sort_keys=True).encode()).hexdigest()
    name = job_name(kind_of(deploy, target), declaration.name)
    config_map: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-{digest[:10]}"},
        "data": data,
    }
    if namespace := getattr(deploy, target).namespace:
        config_map["metadata"]["namespace"] = namespace
    if binary:
        config_map["binaryData"] = binary
    paths = {key: key for key in (*data, *binary)}
    if modules:
        paths[MODULES] = f"{entry.FOLDER}/{modules.name}"
    volume = {
        "name": config_map["metadata"]["name"],
        "items": [{"key": key, "path": path} for key, path in sorted(paths.items())],
    }
    documents = [
        config_map,
        *make_manifests(name, deploy, target, declaration.trainer.distribution, command, volume),
    ]
    for each in documents:
        # The delete commands of `instructions` select the objects of an earlier submission by this label.
        each["metadata"].setdefault("labels", {})[PIPELINE] = name
    return documents


def instructions(declaration: Declaration, target: str, file: Path) -> Iterator[str]:
    """Yields the next steps for the user."""
    deploy = declaration.deploy or DeploySection()
    job, kind = getattr(deploy, target), kind_of(deploy, target)
    name = job_name(kind, declaration.name)
    # `apply` does not restart an existing job, even an ended one. Deletion is in the foreground, because the new pods
    # have the names of the old ones; and by name, because the jobs of earlier versions have no label.
    words = [f"delete {kind.plural} {name} --ignore-not-found --cascade=foreground --wait"]
    words.append(f"delete configmaps --selector {PIPELINE}={name}")
    if kind is TRAIN_JOB:
        # Kubeflow Trainer recreates the pods of a TrainJob that is being deleted while its runtime exists.
        words.insert(0, f"delete trainingruntimes --selector {PIPELINE}={name} --wait=false")
    apply = f"apply --server-side --filename {shlex.quote(str(file))}"
    start = [*(kubectl(each, job.context, job.namespace) for each in words), kubectl(apply, job.context)]
    yield f"start it, replacing an earlier one: {' && '.join(start)}"
    chief = f"{name}-chief-0" if kind is TF_JOB else f"--tail=-1 --selector {kind.job_label}={name},{_CHIEF}"
    yield f"see its log: {kubectl(f'logs --follow {chief}', job.context, job.namespace)}"
    role = job.role("chief")
    yield f"note: its chief runs every step, with the resources of deploy.{target}.replicas.{role}"


def rows(documents: list[Object]) -> Iterator[Row]:
    """Yields the pods' resources."""
    for role, (count, spec) in pods_of(documents).items():
        yield row_of(f"{count} {role}", main_of(spec))
