"""The `beam` section: where Beam runs."""

from __future__ import annotations

from typing import Literal

from pydantic.v1 import Field

from tfx_estimator.pipeline.config.section import Section


class BeamSection(Section):
    """Which engine runs the Beam part of each component."""

    runner: Literal["direct", "portable"] = Field(default="direct", description="Beam's engine")
    options: tuple[str, ...] = Field(
        default=(), description="further Beam flags, for example `--job_endpoint=localhost:8099`"
    )

    def pipeline_args(self) -> list[str]:
        """Returns the flags for `beam_pipeline_args`."""
        runners = {
            # Beam's DirectRunner first tries to download another engine; this names the in-memory one. One worker
            # is the fastest local mode.
            "direct": "apache_beam.runners.portability.fn_api_runner.FnApiRunner",
            "portable": "PortableRunner",
        }
        args = [f"--runner={runners[self.runner]}", *self.options]
        if self.runner == "direct":
            # Without any flag of this kind TFX packs itself into an archive for remote workers, once per component.
            args.append("--sdk_container_image=none")
        return args
