"""The `beam` section: where Beam runs, and what the engines need to know."""

from __future__ import annotations

import json
from typing import Literal, Optional

from tfx_estimator.pipeline.config.section import Field, Section, number

# Key -> Beam's flag.
PORTABLE = {
    "job_endpoint": "--job_endpoint",
    "artifact_endpoint": "--artifact_endpoint",
    "environment_type": "--environment_type",
    "environment_config": "--environment_config",
    "workers": "--sdk_worker_parallelism",
}
# Of these, an engine's own runner starts the job server.
OF_JOB_SERVER = ("job_endpoint", "artifact_endpoint")
# Engine -> key -> Beam's flag, which a value follows. Spark's settings are its job server's properties.
ENGINES = {
    "flink": {
        "master": "--flink_master=",
        "parallelism": "--parallelism=",
        "flink_version": "--flink_version=",
        "job_server_jar": "--flink_job_server_jar=",
    },
    "spark": {
        "master": "--spark_master_url=",
        "parallelism": "--job_server_jvm_properties=-Dspark.default.parallelism=",
        "job_server_jar": "--spark_job_server_jar=",
    },
}
# Beam's DirectRunner first tries to download another engine; this names the in-memory one. One worker is the fastest
# local mode.
IN_PROCESS = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
_RUNNERS = {
    "direct": IN_PROCESS,
    "flink": "tfx_estimator.pipeline.engines.FlinkRunner",
    "spark": "tfx_estimator.pipeline.engines.SparkRunner",
    "portable": "tfx_estimator.pipeline.engines.PortableRunner",
    "dataflow": "tfx_estimator.pipeline.beam.DataflowRunner",
}


class DataflowSection(Section):
    """A Dataflow job. Keys have the names of Beam's options."""

    project: str = Field(..., "project id")
    region: str = Field(..., "region of the job, such as europe-west4")
    temp_location: str = Field(..., "gs:// folder for temporary files")
    staging_location: Optional[str] = Field(None, "gs:// folder for packages; null is `staging` in temp_location")
    sdk_container_image: str = Field(..., "image of the workers, with TFX; this package is installed into it offline")
    service_account_email: Optional[str] = Field(None, "service account of the workers")
    machine_type: Optional[str] = Field(None, "machine type of the workers, such as n1-standard-4")
    num_workers: Optional[int] = number(None, 1, None, "initial number of workers")
    max_num_workers: Optional[int] = number(None, 1, None, "maximum number of workers")
    autoscaling_algorithm: Optional[Literal["NONE", "THROUGHPUT_BASED"]] = Field(
        None, "whether the number of workers adapts to the throughput"
    )
    disk_size_gb: Optional[int] = number(None, 10, None, "disk size of a worker")
    network: Optional[str] = Field(None, "network of the workers")
    subnetwork: Optional[str] = Field(None, "subnetwork of the workers: regions/REGION/subnetworks/NAME")
    use_public_ips: Optional[bool] = Field(None, "whether workers have public addresses")
    dataflow_kms_key: Optional[str] = Field(None, "key that encrypts data on disks")
    labels: dict[str, str] = Field({}, "labels of the job")

    def flags(self) -> list[str]:
        """Returns Beam's flags."""
        values = self.dict()
        labels, public = values.pop("labels"), values.pop("use_public_ips")
        values["staging_location"] = self.staging_location or f"{self.temp_location.rstrip('/')}/staging"
        flags = [f"--{name}={value}" for name, value in values.items() if value is not None]
        if public is not None:
            flags.append("--use_public_ips" if public else "--no_use_public_ips")
        return flags + [f"--labels={json.dumps({name: value})}" for name, value in labels.items()]


class BeamSection(Section):
    """The runner of each component's Beam pipeline."""

    runner: Literal["direct", "flink", "spark", "portable", "dataflow"] = Field(
        "direct", "Beam's runner; portable is that of a job server that is there already, of any engine"
    )
    master: Optional[str] = Field(
        None, "of flink HOST:PORT of its REST interface, of spark spark://HOST:PORT; null: a trial on this machine"
    )
    parallelism: Optional[int] = number(
        None, 1, None, "of flink and spark: parts at once; null is the engine's default"
    )
    flink_version: Optional[str] = Field(None, "the cluster's, such as 1.19; null is the newest that Beam knows")
    job_server_jar: Optional[str] = Field(
        None, "of flink and spark: path or URL of Beam's job server; null downloads it from Maven Central"
    )
    workers: Optional[int] = number(None, 1, None, "of flink, spark, portable: worker processes of each task manager")
    job_endpoint: Optional[str] = Field(None, "of portable: HOST:PORT of the job server")
    artifact_endpoint: Optional[str] = Field(None, "HOST:PORT of the artifact service; null asks the job server")
    environment_type: Optional[Literal["LOOPBACK", "EXTERNAL", "DOCKER", "PROCESS"]] = Field(
        None, "where workers run: in this process, a worker pool, containers, or processes of a command"
    )
    environment_config: Optional[str] = Field(None, "HOST:PORT of the worker pool, the image, or JSON with the command")
    dataflow: Optional[DataflowSection] = None
    options: tuple[str, ...] = Field((), "further Beam flags, for example `--pickle_library=cloudpickle`")

    @property
    def is_local_engine(self) -> bool:
        """True if Beam's job server is the engine, too: Flink or Spark in one process of this machine."""
        return self.runner in ENGINES and self.master is None

    def pipeline_args(self) -> list[str]:
        """Returns the flags for `beam_pipeline_args`."""
        args = [f"--runner={_RUNNERS[self.runner]}", *self.options]
        args += [f"{flag}={value}" for name, flag in PORTABLE.items() if (value := getattr(self, name)) is not None]
        keys = ENGINES.get(self.runner, {})
        args += [f"{flag}{value}" for name, flag in keys.items() if (value := getattr(self, name)) is not None]
        if self.runner == "dataflow":
            return args + (self.dataflow.flags() if self.dataflow else [])
        if self.is_local_engine and self.environment_type is None:
            args.append("--environment_type=LOOPBACK")
        if self.runner != "portable" or self.environment_type is not None:
            # Without a flag of this kind, TFX packs itself into an archive for remote workers, once per component.
            image = self.environment_config if self.environment_type == "DOCKER" else "none"
            args.append(f"--sdk_container_image={image}")
        return args
