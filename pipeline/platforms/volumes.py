"""The volumes of a pod that the section `deploy` declares."""

from __future__ import annotations

from typing import Any, Optional

from tfx_estimator.pipeline.config.deploy import DeploySection

Object = dict[str, Any]


def volumes_of(deploy: DeploySection, accelerator: Optional[str]) -> tuple[list[Object], list[Object]]:
    """Returns a pod's volumes, and its container's mounts of them."""
    volumes: list[Object] = []
    mounts: list[Object] = []
    for index, volume in enumerate(deploy.volumes):
        name, read_only = f"volume-{index}", {"readOnly": True} if volume.read_only else {}
        # A read-only claim keeps Kubernetes from changing the group of the files.
        volumes.append({"name": name, "persistentVolumeClaim": {"claimName": volume.claim, **read_only}})
        mounts.append({"name": name, "mountPath": volume.path, **read_only})
    if memory := deploy.shared_memory(accelerator):
        volumes.append({"name": "shm", "emptyDir": memory})
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})
    return volumes, mounts
