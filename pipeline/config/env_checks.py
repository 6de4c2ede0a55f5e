"""Checks of `deploy.env`: variables that are not the user's to set, and credentials, which belong into no file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.errors import RETRYABLE

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Who sets each of them in the container: what stands in the file would be lost, or hide it.
_SET_BY = {
    "TF_CONFIG": "the service: it tells a task its place in the cluster",
    "CLUSTER_SPEC": "Vertex AI: it tells a replica its place in the job",
    "PATH": "the image: it leads to its Python",
    "HOSTNAME": "the cluster",
    "WORKFLOW_ID": "Kubeflow Pipelines",
    "ENABLE_CACHING": "Kubeflow Pipelines",
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
_CREDENTIAL = re.compile(r"secret|token(?!iz)|passw|access_key|api_key|private_key|connection_string", re.IGNORECASE)
# Of a name that leads to a mounted Secret.
_OF_A_FILE = re.compile(r"_(path|file|dir|folder)$", re.IGNORECASE)


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
        elif _CREDENTIAL.search(name) and not (_OF_A_FILE.search(name) or value.startswith("/")):
            what, expected = "it would stand in the compiled file, for all to read", "an account, or a Secret's file"
            todo = "remove it: deploy.service_account, deploy.secrets; NAME_FILE may name the file"
            yield Problem(f"{path}.{name}", what, expected, todo)


def _set_by(name: str) -> str:
    return _SET_BY.get(name) or next((who for start, who in _FAMILIES.items() if name.startswith(start)), "")
