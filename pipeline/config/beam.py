"""The `beam` section: where Beam runs, and what Google's Dataflow needs to know."""

from __future__ import annotations

import json
from typing import Literal, Optional

from tfx_estimator.pipeline.config.section import Field, Section, number

# Field -> the flag of Beam's that it is.
PORTABLE = {
    "job_endpoint": "--job_endpoint",
    "artifact_endpoint": "--artifact_endpoint",
    "environment_type": "--environment_type",
    "environment_config": "--environment_config",
    "workers": "--sdk_worker_parallelism",
}
_RUNNERS = {
    # Beam's DirectRunner first tries to download another engine; this names the in-memory one. One worker is the
    # fastest local mode.
    "direct": "apache_beam.runners.portability.fn_api_runner.FnApiRunner",
    "portable": "PortableRunner",
    "dataflow": "tfx_estimator.pipeline.beam.DataflowRunner",
}


class DataflowSection(Section):
    """A job on Dataflow. Names are those of Beam's own options."""

    project: str = Field(..., "id of the project")
    region: str = Field(..., "where it runs: europe-west4, for example")
    temp_location: str = Field(..., "gs:// folder for temporary files")
    staging_location: Optional[str] = Field(
        None, "gs:// folder for what workers install; null is `staging` in temp_location"
    )
    sdk_container_image: str = Field(
        ..., "image of the workers, with TFX: this package is installed into it, without a network"
    )
    service_account_email: Optional[str] = Field(None, "account of the workers")
    machine_type: Optional[str] = Field(None, "of the workers: n1-standard-4, for example")
    num_workers: Optional[int] = number(None, 1, None, "workers at the start")
    max_num_workers: Optional[int] = number(None, 1, None, "workers at most")
    autoscaling_algorithm: Optional[Literal["NONE", "THROUGHPUT_BASED"]] = Field(
        None, "whether their number follows the work"
    )
    disk_size_gb: Optional[int] = number(None, 10, None, "disk of a worker")
    network: Optional[str] = Field(None, "network of the workers")
    subnetwork: Optional[str] = Field(None, "their subnetwork: regions/REGION/subnetworks/NAME")
    use_public_ips: Optional[bool] = Field(None, "whether workers have public addresses")
    dataflow_kms_key: Optional[str] = Field(None, "key that encrypts what lies on disks")
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
    """Which engine runs the Beam part of each component."""

    runner: Literal["direct", "portable", "dataflow"] = Field("direct", "Beam's engine")
    workers: Optional[int] = number(None, 1, None, "worker processes on each machine, of portable")
    job_endpoint: Optional[str] = Field(None, "HOST:PORT of the job server, of portable")
    artifact_endpoint: Optional[str] = Field(
        None, "HOST:PORT where files for the workers go; null is what the job server says"
    )
    environment_type: Optional[Literal["LOOPBACK", "EXTERNAL", "DOCKER", "PROCESS"]] = Field(
        None, "what workers run in: this process, a worker pool, containers, or processes of a command"
    )
    environment_config: Optional[str] = Field(None, "HOST:PORT of the worker pool, the image, or JSON with the command")
    dataflow: Optional[DataflowSection] = None
    options: tuple[str, ...] = Field((), "further Beam flags, for example `--pickle_library=cloudpickle`")

    def pipeline_args(self) -> list[str]:
        """Returns the flags for `beam_pipeline_args`."""
        args = [f"--runner={_RUNNERS[self.runner]}", *self.options]
        args += [f"{flag}={value}" for name, flag in PORTABLE.items() if (value := getattr(self, name)) is not None]
        if self.runner == "dataflow":
            return args + (self.dataflow.flags() if self.dataflow else [])
        if self.runner != "portable" or self.environment_type is not None:
            # Without any flag of this kind TFX packs itself into an archive for remote workers, once per component.
            image = self.environment_config if self.environment_type == "DOCKER" else "none"
            args.append(f"--sdk_container_image={image}")
        return args
