"""Trains in a TFJob, if the declaration says so."""

from __future__ import annotations

import os
from typing import Optional

from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.components.trainer.supervisor.outcome import Outcome
from tfx_estimator.components.trainer.tfjob.api import Kube
from tfx_estimator.components.trainer.tfjob.launcher import Launcher
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.user_source.pack import Packed, pack


def is_wanted(settings: Settings) -> bool:
    """Does the declaration say that the training runs in a TFJob."""
    return deploy_of(settings).tfjob.train


def deploy_of(settings: Settings) -> DeploySection:
    """Returns the declaration's section `deploy`; its defaults where there is none."""
    return DeploySection.parse_obj((settings.declaration or {}).get("deploy") or {})


def check(deploy: DeploySection, folder: str) -> Kube:
    """Finds out, before anything is done, that a TFJob can be started, and sees the work folder.

    Args:
        folder: The work folder, or a part of it.

    Raises:
        DeclarationError: The folder is in no volume.
        PipelineError: There is no cluster, no training operator, or no permission.
    """
    path = folder if is_address(folder) else os.path.abspath(folder)
    if not deploy.is_mounted(path, writable=True):
        paths = ", ".join(volume.path for volume in deploy.volumes if not volume.read_only)
        raise DeclarationError(
            f"the work folder is in none of deploy.volumes: {path}",
            expected=f"a folder that the pods of the TFJob have at the same path, below {paths}",
            todo="name it by --workdir (in Kubeflow: deploy.pipeline_root), or mount its volume there",
        )
    kube = Kube(deploy.tfjob.context, deploy.tfjob.namespace)
    kube.check()
    return kube


def train(job: Job, settings: Settings, logs: str) -> Outcome:
    """Trains a job in a TFJob.

    Raises:
        TfxEstimatorError: As `check` and `Launcher.run`.
    """
    deploy, section = deploy_of(settings), settings.trainer
    kube = check(deploy, job.training_dir)
    assert section is not None
    assert settings.declaration is not None
    modules = modules_of(section, job.exec_properties.get("run_fn") or job.exec_properties.get("trainer_fn") or "")
    return Launcher(kube, job, deploy, settings.declaration["name"], logs, modules).run()


def modules_of(section: TrainerSection, function: str = "") -> Optional[Packed]:
    """Packs what the pods import of the user's own; of a module file, too.

    TFX's wheel of that holds what lies beside it, but no folder, and nothing of the declaration's.

    Args:
        section: What to train; the declaration's folder is in `sys.path`.
        function: Dotted path of a module file's function in a step of a compiled pipeline: its modules have travelled
            there, and the file has not.

    Returns:
        The wheel; None where there is nothing of the user's own.

    Raises:
        DeclarationError: It cannot travel.
    """
    target = section.target
    if section.module_file is not None and function:
        target = ":".join(function.rsplit(".", 1))
    return pack([target])
