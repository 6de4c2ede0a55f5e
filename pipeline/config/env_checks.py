"""Checks of `deploy.env`: the variables of every step."""

from __future__ import annotations

from collections.abc import Iterator

from tfx_estimator.pipeline.base.targets import VERTEX
from tfx_estimator.pipeline.config.credentials import IN_THE_FILE, is_credential
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.config.problems import Problem

_KEY_FILE = "GOOGLE_APPLICATION_CREDENTIALS"


def check_env(deploy: DeploySection) -> Iterator[Problem]:
    """Finds variables that nobody else should read.

    Yields:
        The problems, which leave the values out.
    """
    for name, value in deploy.env.items():
        if is_credential(name, value, deploy):
            todo = "remove it: deploy.service_account, deploy.secrets; NAME_FILE may name the file"
            yield Problem(f"deploy.env.{name}", IN_THE_FILE, "an account, or a Secret's file", todo)


def check_key_file(deploy: DeploySection, target: str) -> Iterator[Problem]:
    """Checks whether the steps have the key file that a variable of Google's leads to.

    Args:
        target: One of `targets.ALL_TARGETS`.

    Yields:
        The problem, without the value: it may name a person.
    """
    path, value = f"deploy.env.{_KEY_FILE}", deploy.env.get(_KEY_FILE)
    if value is not None and target == VERTEX:
        what, expected = "Vertex AI mounts no key's file", "the account that the steps run as"
        yield Problem(path, what, expected, "remove it, and name deploy.service_account")
    elif value and not deploy.is_provided(value):
        what, expected = "nothing that is mounted is there", "a file below a path of deploy.secrets"
        yield Problem(path, what, expected, "put the key into a Secret, and name its file: see docs/deploy.md")
