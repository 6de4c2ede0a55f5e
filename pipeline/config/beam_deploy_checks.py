"""Checks of whether the declared Beam can be reached from where a pipeline is to be deployed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tfx_estimator.pipeline.config.beam import BeamSection
from tfx_estimator.pipeline.config.credentials import flag_of, is_credential, shown_options
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.config.paths import OF_THIS_MACHINE
from tfx_estimator.pipeline.config.problems import Problem

_LOCAL_HOST = re.compile(r"\b(localhost|127\.0\.0\.1)\b|\[::1\]")
_A_HOST = "a host that the steps reach"
_IN_THE_CLUSTER = "name the service's address in the cluster"


def check_deployed_beam(beam: BeamSection, deploy: DeploySection) -> Iterator[Problem]:
    """Finds what a step of a deployed pipeline would look for in its own container, in vain.

    Args:
        deploy: Where the pipeline runs.
    """
    # A worker pool may well be on the machine of those who ask it: Flink's task managers do.
    for name in ("job_endpoint", "artifact_endpoint"):
        value = getattr(beam, name)
        if value is not None and _LOCAL_HOST.search(value):
            yield Problem(f"beam.{name}", OF_THIS_MACHINE, _A_HOST, _IN_THE_CLUSTER, value=value)
    if beam.environment_type == "LOOPBACK":
        what = "the job server would look for the step's own process on its machine"
        expected, todo = "EXTERNAL, DOCKER or PROCESS", "name where the job server's machines find workers"
        yield Problem("beam.environment_type", what, expected, todo, value="LOOPBACK")
    yield from _options(beam, deploy)
    root = deploy.pipeline_root
    if beam.runner == "dataflow" and root is not None and deploy.is_mounted(root):
        what, todo = "Dataflow's workers have no volume of the cluster", "name a bucket, or take another beam.runner"
        yield Problem("deploy.pipeline_root", what, "gs://BUCKET/FOLDER", todo, value=root, depends=("beam.runner",))


def _options(beam: BeamSection, deploy: DeploySection) -> Iterator[Problem]:
    for option, shown in zip(beam.options, shown_options(beam.options)):
        name, value = flag_of(option)
        if is_credential(name, value, deploy):
            continue  # told as such
        if _LOCAL_HOST.search(option):
            yield Problem("beam.options", OF_THIS_MACHINE, _A_HOST, _IN_THE_CLUSTER, value=shown)
        elif value.startswith(("/", "~", ".")) and not deploy.is_provided(value):
            expected, todo = "a place that the steps reach", "name one in a bucket, or in a volume"
            yield Problem("beam.options", OF_THIS_MACHINE, expected, todo, value=shown)
