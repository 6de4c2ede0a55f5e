"""Compiled presets."""

from __future__ import annotations

import json
import re
import sys

import pytest

import tfx_estimator
from tests.pipeline.runners.deployed import (
    COMMON,
    CUSTOM_JOB,
    IMAGE,
    OF_TARGET,
    OF_TFJOB,
    OF_TRAINJOB,
    OF_TWO_PODS,
    REACHED,
)
from tests.stack import HERE
from tfx_estimator.pipeline import presets
from tfx_estimator.pipeline.base.stack.stacks import LEGACY
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.platforms.registry import ALL_TARGETS, POD_TARGETS, TFJOB, TRAINJOB, VERTEX
from tfx_estimator.pipeline.platforms.training_jobs.kinds import TRAIN_JOB
from tfx_estimator.pipeline.platforms.training_jobs.manifest import job_name
from tfx_estimator.pipeline.platforms.vertex.custom_job import Plan

pytestmark = pytest.mark.golden

VERSIONS = {
    f'"sdkVersion": "tfx-{HERE.tfx}"': f'"sdkVersion": "tfx-{LEGACY.tfx}"',
    f"sdkVersion: tfx-{HERE.tfx}": f"sdkVersion: tfx-{LEGACY.tfx}",
    f'"tfx_version": "{HERE.tfx.replace(".", "-")}"': f'"tfx_version": "{LEGACY.tfx.replace(".", "-")}"',
    f'"tfx_py_version": "3-{sys.version_info[1]}"': '"tfx_py_version": "3-10"',
    f"{tfx_estimator.__version__} on {HERE.name}": tfx_estimator.__version__,
}
# Options of Dataflow, whatever the other steps run on.
DATAFLOW = (
    "data.data_dir=gs://example-bucket/tfds",
    "beam={runner: dataflow, options: [--experiments=use_runner_v2]}",
    "beam.dataflow={project: example-project, region: europe-west4, temp_location: gs://example-bucket/tmp}",
    f"beam.dataflow.sdk_container_image={IMAGE}",
    "beam.dataflow.service_account_email=worker@example-project.iam.gserviceaccount.com",
    "beam.dataflow.machine_type=n1-standard-4",
    "beam.dataflow.num_workers=2",
    "beam.dataflow.max_num_workers=5",
    "beam.dataflow.disk_size_gb=40",
    "beam.dataflow.subnetwork=regions/europe-west4/subnetworks/inner",
    "beam.dataflow.use_public_ips=false",
    "beam.dataflow.labels={team: vision}",
)


def overrides(name: str, target: str) -> tuple[str, ...]:
    """Returns all options of a target with which a preset can be trained."""
    if target not in POD_TARGETS:
        return (*COMMON, *OF_TARGET[target])
    return {TFJOB: OF_TFJOB, TRAINJOB: OF_TRAINJOB}[target] if name == "digits" else OF_TWO_PODS[target]


@pytest.mark.parametrize(
    ("target", "name"),
    [(target, name) for target in ALL_TARGETS for name in (presets.names() if target in POD_TARGETS else REACHED)],
)
def test_the_compiled_preset(golden, name, target):
    text = compiled(name, target, overrides(name, target))
    golden(f"compiled/{name}.{target}.{'json' if target == VERTEX else 'yaml'}", text)


def test_the_custom_job(golden):
    text = compiled("digits", VERTEX, (*COMMON, *OF_TARGET[VERTEX], *CUSTOM_JOB))
    golden("compiled/digits.vertex.custom_job.json", text)
    task = json.loads(text)["pipelineSpec"]["root"]["dag"]["tasks"]["Trainer"]
    plan = Plan.from_json(task["inputs"]["parameters"]["custom_job"]["runtimeValue"]["constant"])
    # The step's request to the service, with its `worker_pool_specs`.
    job = plan.to_job("gs://example-bucket/pipelines/digits/artifacts/1/2/Trainer/model_run", "gs://example-bucket")
    golden("compiled/digits.custom_job.json", json.dumps(job, indent=2, sort_keys=True) + "\n")


def compiled(name: str, target: str, declared: tuple[str, ...]) -> str:
    """Compiles a preset, and masks what varies.

    Fingerprints of the source change with every edit, those of data after a download.
    """
    from tfx_estimator.pipeline.runners.compiling import compile_declaration

    text = compile_declaration(load(name, declared, target), target).text
    # Written on tfx1.15; other stacks differ only in their version numbers.
    for current, legacy in VERSIONS.items():
        text = text.replace(current, legacy)
    if target == TRAINJOB:
        # A digest that includes the stack's name.
        text = re.sub(rf"\b{job_name(TRAIN_JOB, load(name).declaration.name)}-[0-9a-f]{{10}}\b", f"{name}-DIGEST", text)
    digest = IMAGE.rpartition(":")[2]
    return re.sub(r"\b[0-9a-f]{64}\b", lambda found: digest if found[0] == digest else "FINGERPRINT", text)


def test_the_options_of_dataflow(golden):
    beam = load("digits", (*COMMON, *OF_TARGET[VERTEX], *DATAFLOW), VERTEX).declaration.beam
    golden("beam/dataflow.txt", "\n".join([*beam.pipeline_args(), ""]))
