"""The `beam` section: where Beam runs."""

from __future__ import annotations

from typing import Literal, Optional

from pydantic.v1 import Field, conint

from tfx_estimator.pipeline.config.dataflow import DataflowSection
from tfx_estimator.pipeline.config.section import Section

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
    "dataflow": "tfx_estimator.pipeline.beam.dataflow.DataflowRunner",
}


class BeamSection(Section):
    """Which engine runs the Beam part of each component."""

    runner: Literal["direct", "portable", "dataflow"] = Field(default="direct", description="Beam's engine")
    workers: Optional[conint(ge=1)] = Field(  # type: ignore[valid-type]
        default=None, description="worker processes on each machine, of portable"
    )
    job_endpoint: Optional[str] = Field(default=None, description="HOST:PORT of the job server, of portable")
    artifact_endpoint: Optional[str] = Field(
        default=None, description="HOST:PORT where files for the workers go; null is what the job server says"
    )
    environment_type: Optional[Literal["LOOPBACK", "EXTERNAL", "DOCKER", "PROCESS"]] = Field(
        default=None,
        description="what workers run in: this process, a worker pool, containers, or processes of a command",
    )
    environment_config: Optional[str] = Field(
        default=None, description="HOST:PORT of the worker pool, the image, or JSON with the command"
    )
    dataflow: Optional[DataflowSection] = None
    options: tuple[str, ...] = Field(
        default=(), description="further Beam flags, for example `--pickle_library=cloudpickle`"
    )

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
