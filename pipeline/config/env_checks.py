"""Checks of what a compiled file holds as it was written: variables, and credentials, which belong into no file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tfx_estimator.pipeline.config import render
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.config.paths import OF_THIS_MACHINE
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.errors import RETRYABLE
from tfx_estimator.pipeline.release import COMPILED_BY
from tfx_estimator.pipeline.targets import VERTEX

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNHELD = re.compile("[\0\ud800-\udfff]")
# Who sets each of them in the container: what stands in the file would be lost, or hide it.
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
# TOKENIZERS_PARALLELISM is none.
_CREDENTIAL = re.compile(r"secret|token(?!iz)|passw|(access|api|private)[_-]?key|connection[_-]?string", re.IGNORECASE)
# Of a name that leads to a mounted Secret.
_OF_A_FILE = re.compile(r"[_-](path|file|dir|folder)$", re.IGNORECASE)
_KEY_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
# They name a person, wherever they stand.
_OF_A_PERSON = re.compile(r"(?<![\w.])(~[\w.-]*(?=/)|/(home|Users)/[\w.-]+|/root)(?![\w.-])")
# They are in every image.
_OF_THE_SYSTEM = ("bin", "dev", "etc", "lib", "lib64", "opt", "proc", "run", "sbin", "sys", "tmp", "usr", "var", "work")
_SPECIAL = re.compile(r"<.*>|\[.*\]")
_IN_THE_FILE = "it would stand in the compiled file, for all to read"


def is_credential(name: str, value: str) -> bool:
    """Tells whether a value is one that nobody else should read, by what it is called.

    Args:
        name: Of a variable, a flag or a parameter.
        value: What leads to a file is none.
    """
    return bool(_CREDENTIAL.search(name)) and not (_OF_A_FILE.search(name) or value.startswith("/"))


def check_credentials(params: Mapping[str, Any], options: tuple[str, ...]) -> Iterator[Problem]:
    """Finds credentials among what a compiled file holds beside `deploy.env`.

    Args:
        params: `trainer.params`.
        options: `beam.options`.

    Yields:
        The problems, without the values.
    """
    expected = "an account, or a Secret's file"
    for path, value in render.leaves(dict(params)):
        # A network may well count its tokens, and have special ones, as <pad>.
        if isinstance(value, str) and is_credential(str(path[-1]), value) and not _SPECIAL.fullmatch(value):
            todo = "read it in your code, of a file of deploy.secrets; if it is no credential, rename it"
            yield Problem(".".join(("trainer.params", *map(str, path))), _IN_THE_FILE, expected, todo)
    for option in options:
        name, _, value = option.partition("=")
        if is_credential(name, value):
            todo = "remove it: deploy.service_account, deploy.secrets"
            yield Problem("beam.options", _IN_THE_FILE, expected, todo, value=name)


def check_env(env: Mapping[str, str]) -> Iterator[Problem]:
    """Checks the variables.

    Args:
        env: The section.

    Yields:
        The problems, which leave the values out: one may be the credential.
    """
    path = "deploy.env"
    for name, value in env.items():
        if not _VARIABLE.fullmatch(name):
            yield Problem(path, "this is no variable's name", "letters, digits and `_`", "rename it", value=name)
        elif who := _set_by(name):
            what, todo = f"this variable is set by {who}", "remove it"
            yield Problem(f"{path}.{name}", what, "variables of your own code's", todo)
        elif is_credential(name, value):
            todo = "remove it: deploy.service_account, deploy.secrets; NAME_FILE may name the file"
            yield Problem(f"{path}.{name}", _IN_THE_FILE, "an account, or a Secret's file", todo)
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
        elif name == _KEY_FILE and value and not _is_mounted(deploy, value):
            what, expected = "nothing that is mounted is there", "a file below a path of deploy.secrets"
            yield Problem(path, what, expected, "put the key into a Secret, and name its file: see docs/deploy.md")
        elif _leads_here(deploy, value):
            expected = (
                "a place that the steps reach" if target == VERTEX else "a place of deploy.volumes or deploy.secrets"
            )
            todo = "name one; what the image has of its own, its Dockerfile says: ENV"
            yield Problem(path, OF_THIS_MACHINE, f"{expected}, or an address", todo)


def _leads_here(deploy: DeploySection, value: str) -> bool:
    """Tells whether a value, or a part of a list as PYTHONPATH has them, is a path of this machine."""
    if "://" in value:
        return False
    found = [match for match in _OF_A_PERSON.finditer(value) if not _is_mounted(deploy, value[match.start() :])]
    parts = (each for each in value.split(":") if each.startswith("/") and not _is_mounted(deploy, each))
    return bool(found) or any(_of_the_user(each) for each in parts)


def _of_the_user(path: str) -> bool:
    first = os.path.normpath(path).lstrip("/").partition("/")[0]
    return bool(first) and first not in _OF_THE_SYSTEM and os.path.exists(path)


def _is_mounted(deploy: DeploySection, path: str) -> bool:
    folder = os.path.normpath(path) + "/"
    return deploy.is_mounted(path) or any(
        folder.startswith(os.path.normpath(each.path) + "/") for each in deploy.secrets
    )


def _set_by(name: str) -> str:
    return _SET_BY.get(name) or next((who for start, who in _FAMILIES.items() if name.startswith(start)), "")
