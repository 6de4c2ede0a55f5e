"""Checks of `deploy.volumes` and `deploy.secrets`: what is mounted where, in every step."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.config.problems import Problem

_PART = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
KUBERNETES_NAME = re.compile(rf"(?=.{{1,253}}$){_PART}([.]{_PART})*")
# Kubeflow Pipelines 2 calls a pod's volume as its claim, or its Secret; and mounts these of its own, and Argo's.
_VOLUME = re.compile(_PART)
_OF_KUBEFLOW = {
    "argo-staging": "",
    "dot-cache-scratch": "/.cache",
    "dot-config-scratch": "/.config",
    "dot-local-scratch": "/.local",
    "gcs-scratch": "/gcs",
    "kfp-launcher": "/kfp-launcher",
    "minio-scratch": "/minio",
    "s3-scratch": "/s3",
    "tmp-dir-argo": "",
    "var-run-argo": "/var/run/argo",
}
# Folders of the image, which a mount would hide.
_OF_THE_IMAGE = ("bin", "boot", "dev", "etc", "lib", "lib64", "opt", "opt/tfx-estimator", "proc", "sbin", "sys", "usr")
# Steps write to these folders, so nothing that is read-only may be mounted there.
_WRITTEN = ("tmp", "work", "var", "var/tmp")


def check_mounts(deploy: DeploySection) -> Iterator[Problem]:
    """Checks the sections.

    Args:
        deploy: Typed values.

    Yields:
        The problems.
    """
    taken: set[str] = set()
    named = [("volumes", each.claim, each.path, each.read_only) for each in deploy.volumes]
    named += [("secrets", each.name, each.path, True) for each in deploy.secrets]
    for key, name, path, read_only in named:
        where, todo = f"deploy.{key}", "name another path"
        if not KUBERNETES_NAME.fullmatch(name):
            expected = "a to z, digits, `-` and `.`, each part from a letter or digit to another"
            yield Problem(where, "this is no name of Kubernetes", expected, "correct it", value=name)
        folder = posixpath.normpath(path).lstrip("/")
        if not path.startswith("/") or folder in ("", ".") or ":" in path:
            expected = "an absolute path of a folder of its own, without `:`"
            yield Problem(where, "it cannot be mounted there", expected, todo, value=path)
        elif folder in _OF_THE_IMAGE:
            what = "it would hide what the image has there"
            yield Problem(where, what, "a folder of its own, as /mnt/NAME", todo, value=path)
        elif read_only and folder in _WRITTEN:
            what = "steps write there, and it takes nothing"
            yield Problem(where, what, "a folder of its own, as /mnt/NAME", todo, value=path)
        elif folder in taken:
            yield Problem(where, "two are mounted there", "each at a path of its own", todo, value=path)
        taken.add(folder)


def check_kubeflow_mounts(deploy: DeploySection) -> Iterator[Problem]:
    """Checks what holds for Kubeflow Pipelines 2 beside: that each pod's volumes have names, and one each.

    One claim, or one Secret, may be mounted twice: Argo makes one volume of what has one name.

    Args:
        deploy: Typed values.

    Yields:
        The problems.
    """
    claims = {each.claim for each in deploy.volumes}
    named = [("volumes", each.claim, each.path) for each in deploy.volumes]
    named += [("secrets", each.name, each.path) for each in deploy.secrets]
    for key, name, path in dict.fromkeys(named):
        where, kind = f"deploy.{key}", "claim" if key == "volumes" else "Secret"
        todo = f"give the {kind} another name in the cluster, and name that"
        if KUBERNETES_NAME.fullmatch(name) and not _VOLUME.fullmatch(name):
            what, expected = "Kubeflow Pipelines 2 calls the volume so", "a to z, digits and `-`, at most 63: no dot"
            yield Problem(where, f"{what}, which no volume may be called", expected, todo, value=name)
        elif name in _OF_KUBEFLOW:
            what, expected = "Kubeflow Pipelines 2 has a volume of that name itself", "another name"
            yield Problem(where, what, expected, todo, value=name)
        elif key == "secrets" and name in claims:
            what = "a claim in deploy.volumes has that name, and Kubeflow Pipelines 2 makes one volume of both"
            yield Problem(where, what, "a Secret and a claim of different names", todo, value=name)
        if posixpath.normpath(f"/{path.lstrip('/')}") in _OF_KUBEFLOW.values():
            what, expected = "Kubeflow Pipelines 2 has a volume of its own there", "a folder of its own, as /mnt/NAME"
            yield Problem(where, what, expected, "name another path", value=path)
