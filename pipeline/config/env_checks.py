"""Checks of `deploy.env`: the variables of every step."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from tfx_estimator.pipeline.config.credentials import IN_THE_FILE, is_credential
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.config.paths import OF_THIS_MACHINE
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.errors import RETRYABLE
from tfx_estimator.pipeline.release import COMPILED_BY
from tfx_estimator.pipeline.targets import VERTEX

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNHELD = re.compile("[\0\ud800-\udfff]")
# Who sets each variable in the container. A declared value would be lost, or hide that one.
_SET_BY = {
    "TF_CONFIG": "the service: it tells a task its place in the cluster",
    "CLUSTER_SPEC": "Vertex AI: it tells a replica its place in the job",
    "PATH": "the image: it leads to its Python",
    "HOSTNAME": "the cluster",
    "WORKFLOW_ID": "Kubeflow Pipelines",
    "ENABLE_CACHING": "Kubeflow Pipelines",
    COMPILED_BY: "this project: it is the release that compiles",
    RETRYABLE: "this project, beside deploy.tfjob.restart_policy",
}
_FAMILIES = {
    "AIP_": "Vertex AI",
    "CLOUD_ML_": "Vertex AI",
    "KUBERNETES_": "the cluster",
    "KFP_": "Kubeflow Pipelines",
    "ARGO_": "Kubeflow Pipelines",
}
_KEY_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
# They name a person, wherever they stand.
_OF_A_PERSON = re.compile(r"(?<![\w.])(~[\w.-]*(?=/)|/(home|Users)/[\w.-]+|/root)(?![\w.-])")
# They are in every image.
_OF_THE_SYSTEM = ("bin", "dev", "etc", "lib", "lib64", "opt", "proc", "run", "sbin", "sys", "tmp", "usr", "var", "work")


def check_env(deploy: DeploySection) -> Iterator[Problem]:
    """Checks the variables.

    Args:
        deploy: The section.

    Yields:
        The problems, which leave the values out: one may be the credential.
    """
    path = "deploy.env"
    for name, value in deploy.env.items():
        if not _VARIABLE.fullmatch(name):
            yield Problem(path, "this is no variable's name", "letters, digits and `_`", "rename it", value=name)
        elif who := _set_by(name):
            what, todo = f"this variable is set by {who}", "remove it"
            yield Problem(f"{path}.{name}", what, "variables of your own code's", todo)
        elif is_credential(name, value, deploy):
            todo = "remove it: deploy.service_account, deploy.secrets; NAME_FILE may name the file"
            yield Problem(f"{path}.{name}", IN_THE_FILE, "an account, or a Secret's file", todo)
        elif _UNHELD.search(value):
            what, expected = "it holds a character that no variable can", "text without \\0 and lone surrogates"
            yield Problem(f"{path}.{name}", what, expected, "remove the character")


def check_deployed_env(deploy: DeploySection, target: str) -> Iterator[Problem]:
    """Finds variables that lead to what the steps do not have: files and folders of this machine.

    Args:
        deploy: The section.
        target: One of `targets.ALL_TARGETS`.

    Yields:
        The problems, without the values: they may name a person.
    """
    for name, value in deploy.env.items():
        path = f"deploy.env.{name}"
        if name == _KEY_FILE and target == VERTEX:
            what, expected = "Vertex AI mounts no key's file", "the account that the steps run as"
            yield Problem(path, what, expected, "remove it, and name deploy.service_account")
        elif name == _KEY_FILE and value and not deploy.is_provided(value):
            what, expected = "nothing that is mounted is there", "a file below a path of deploy.secrets"
            yield Problem(path, what, expected, "put the key into a Secret, and name its file: see docs/deploy.md")
        elif not is_credential(name, value, deploy) and _leads_here(deploy, value):
            expected = (
                "a place that the steps reach" if target == VERTEX else "a place of deploy.volumes or deploy.secrets"
            )
            todo = "name one; what the image has of its own, its Dockerfile says: ENV"
            yield Problem(path, OF_THIS_MACHINE, f"{expected}, or an address", todo)


def _leads_here(deploy: DeploySection, value: str) -> bool:
    """Tells whether a value, or a part of a list as PYTHONPATH has them, is a path of this machine."""
    if "://" in value:
        return False
    found = [match for match in _OF_A_PERSON.finditer(value) if not deploy.is_provided(value[match.start() :])]
    parts = (each for each in value.split(":") if each.startswith("/") and not deploy.is_provided(each))
    return bool(found) or any(_of_the_user(each) for each in parts)


def _of_the_user(path: str) -> bool:
    first = os.path.normpath(path).lstrip("/").partition("/")[0]
    return bool(first) and first not in _OF_THE_SYSTEM and os.path.exists(path)


def _set_by(name: str) -> str:
    return _SET_BY.get(name) or next((who for start, who in _FAMILIES.items() if name.startswith(start)), "")
