"""Checks of `deploy.volumes` and `deploy.secrets`: what is mounted where, in every step."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.config.problems import Problem

_PART = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
KUBERNETES_NAME = re.compile(rf"(?=.{{1,253}}$){_PART}([.]{_PART})*")
# What the image brings: it would be hidden.
_OF_THE_IMAGE = ("bin", "boot", "dev", "etc", "lib", "lib64", "opt", "opt/tfx-estimator", "proc", "sbin", "sys", "usr")
# Steps write there, and a Secret, or a volume that is read_only, takes nothing.
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
