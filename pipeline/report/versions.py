"""The versions that a run's results may depend on."""

from __future__ import annotations

import os
import platform

from tfx_estimator.pipeline.base.cpus import available_cpus
from tfx_estimator.pipeline.base.installed import version_of
from tfx_estimator.pipeline.base.stack import stacks

_PACKAGES = (
    "tfx-estimator",
    "tfx",
    "tensorflow",
    "tensorflow-estimator",
    "keras",
    "tf_keras",
    "tensorflow-transform",
    "tensorflow-model-analysis",
    "tensorflow-datasets",
    "apache-beam",
    "ml-metadata",
    "numpy",
)


def read_versions() -> dict[str, str]:
    """Returns the stack, the versions of Python and of the packages, and what machine this is."""
    found = {"stack": stacks.current().words, "Python": platform.python_version()}
    for name in _PACKAGES:
        if version := version_of(name):
            found[name] = version
    there, available = os.cpu_count() or 1, available_cpus()
    used = f", {available} of which may be used" if available < there else ""
    found["machine"] = f"{platform.platform(aliased=True)}, {there} CPUs{used}"
    return found
