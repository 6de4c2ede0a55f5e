"""The versions that a run's results may depend on."""

from __future__ import annotations

import os
import platform
from importlib import metadata

_PACKAGES = (
    "tfx-estimator",
    "tfx",
    "tensorflow",
    "tensorflow-estimator",
    "keras",
    "tensorflow-transform",
    "tensorflow-model-analysis",
    "tensorflow-datasets",
    "apache-beam",
    "ml-metadata",
    "numpy",
)


def read_versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages, and what machine this is."""
    found = {"Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    found["machine"] = f"{platform.platform(aliased=True)}, {os.cpu_count()} CPUs"
    return found
