"""The `beam` section as Beam's flags."""

from __future__ import annotations

import pytest

from tests.pipeline.runners.deployed import COMMON, OF_TARGET, refused
from tfx_estimator.pipeline.config.beam import BeamSection

pytestmark = pytest.mark.unit


def test_the_default_is_the_engine_in_memory():
    assert BeamSection().pipeline_args() == [
        "--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner",
        "--sdk_container_image=none",
    ]


def test_a_job_server_is_told_by_its_fields():
    section = BeamSection(
        runner="portable",
        job_endpoint="flink:8099",
        environment_type="DOCKER",
        environment_config="images/mine:1",
        workers=3,
        options=["--parallelism=6"],
    )
    assert section.pipeline_args() == [
        "--runner=PortableRunner",
        "--parallelism=6",
        "--job_endpoint=flink:8099",
        "--environment_type=DOCKER",
        "--environment_config=images/mine:1",
        "--sdk_worker_parallelism=3",
        "--sdk_container_image=images/mine:1",
    ]


def test_dataflow_stages_below_its_temporary_folder_unless_told_otherwise():
    needed = {"project": "mine-1", "region": "europe-west4", "temp_location": "gs://mine/tmp/"}
    needed["sdk_container_image"] = "images/mine:1"
    args = BeamSection(runner="dataflow", dataflow={**needed, "use_public_ips": False}).pipeline_args()
    assert args == [
        "--runner=tfx_estimator.pipeline.beam.dataflow.DataflowRunner",
        "--project=mine-1",
        "--region=europe-west4",
        "--temp_location=gs://mine/tmp/",
        "--staging_location=gs://mine/tmp/staging",
        "--sdk_container_image=images/mine:1",
        "--no_use_public_ips",
    ]
    needed["staging_location"] = "gs://mine/elsewhere"
    args = BeamSection(runner="dataflow", dataflow={**needed, "labels": {"team": "a"}}).pipeline_args()
    assert "--staging_location=gs://mine/elsewhere" in args
    assert args[-1] == '--labels={"team": "a"}'


@pytest.mark.parametrize("target", ["", "kubeflow"])
@pytest.mark.parametrize(
    ("beam", "taken"),
    [
        ("runner: portable, job_endpoint: 'a:1', environment_type: EXTERNAL, environment_config: 'a:2'", False),
        ("runner: portable, job_endpoint: 'a:1', environment_type: DOCKER, environment_config: mine", False),
        ("runner: portable, options: [--job_endpoint=a:1, --environment_type=PROCESS]", False),
        ("runner: portable, job_endpoint: 'a:1', environment_type: LOOPBACK", True),
        ("runner: direct", True),
    ],
)
def test_a_builder_of_ones_own_is_read_by_this_process_alone(target, beam, taken):
    whole = (*COMMON, *OF_TARGET[target]) if target else ()
    # Of a module that is not there.
    problems = refused(target, *whole, "data={dataset: 'shapes:Shapes'}", f"beam={{{beam}}}")
    assert any("have no module of yours" in problem for problem in problems) is not taken
