"""The `beam` section as Beam's flags."""

from __future__ import annotations

from tests.pipeline.runners.deployed import COMMON, OF_TARGET, refused
from tfx_estimator.pipeline.config.beam import BeamSection


def test_the_default_is_the_in_memory_runner():
    assert BeamSection().pipeline_args() == [
        "--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner",
        "--sdk_container_image=none",
    ]


def test_fields_of_a_job_server_become_flags():
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


def test_dataflow_stages_below_temp_location_by_default():
    needed = {"project": "mine-1", "region": "europe-west4", "temp_location": "gs://mine/tmp/"}
    needed["sdk_container_image"] = "images/mine:1"
    args = BeamSection(runner="dataflow", dataflow={**needed, "use_public_ips": False}).pipeline_args()
    assert args == [
        "--runner=tfx_estimator.pipeline.beam.DataflowRunner",
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


def test_loopback_workers_are_suggested_only_without_a_target():
    beam = "beam={runner: portable, job_endpoint: 'a:1'}"
    (problem,) = refused("kubeflow", *COMMON, *OF_TARGET["kubeflow"], beam)
    assert "LOOPBACK" not in problem
    assert "LOOPBACK" in refused("", beam)[0]
