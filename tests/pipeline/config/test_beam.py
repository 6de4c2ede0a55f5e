"""The `beam` section as Beam's flags."""

from __future__ import annotations

from apache_beam.options.pipeline_options import JobServerOptions, PipelineOptions, SparkRunnerOptions

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
        "--runner=tfx_estimator.pipeline.engines.PortableRunner",
        "--parallelism=6",
        "--job_endpoint=flink:8099",
        "--environment_type=DOCKER",
        "--environment_config=images/mine:1",
        "--sdk_worker_parallelism=3",
        "--sdk_container_image=images/mine:1",
    ]


def test_an_engine_is_named_as_its_users_name_it():
    where = {"environment_type": "EXTERNAL", "environment_config": "localhost:50000"}
    flink = BeamSection(runner="flink", master="jobs:8081", parallelism=8, flink_version="1.19", **where)
    pool = ["--environment_type=EXTERNAL", "--environment_config=localhost:50000"]
    assert flink.pipeline_args() == [
        "--runner=tfx_estimator.pipeline.engines.FlinkRunner",
        *pool,
        "--flink_master=jobs:8081",
        "--parallelism=8",
        "--flink_version=1.19",
        "--sdk_container_image=none",
    ]
    spark = BeamSection(runner="spark", master="spark://jobs:7077", parallelism=8, job_server_jar="a.jar", **where)
    args = spark.pipeline_args()
    assert args[1:3] == pool
    options = PipelineOptions(args)
    assert options.view_as(SparkRunnerOptions).spark_master_url == "spark://jobs:7077"
    assert options.view_as(SparkRunnerOptions).spark_job_server_jar == "a.jar"
    # What Spark reads when the job server starts.
    assert options.view_as(JobServerOptions).job_server_jvm_properties == ["-Dspark.default.parallelism=8"]


def test_a_trial_without_a_cluster_does_the_work_in_this_process():
    assert "--environment_type=LOOPBACK" in BeamSection(runner="flink").pipeline_args()
    assert "--environment_type=LOOPBACK" not in BeamSection(runner="flink", master="jobs:8081").pipeline_args()


def test_a_step_needs_a_cluster_that_it_reaches():
    (problem,) = refused("kubeflow", *COMMON, *OF_TARGET["kubeflow"], "beam={runner: flink}")
    assert "name the cluster" in problem
    local = "master: 'localhost:8081', environment_type: EXTERNAL, environment_config: 'localhost:1'"
    (problem,) = refused("kubeflow", *COMMON, *OF_TARGET["kubeflow"], f"beam={{runner: flink, {local}}}")
    assert "beam.master" in problem


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
