"""Volumes of Kubernetes' pods."""

from __future__ import annotations

from tfx_estimator.pipeline.config.section import Field, Section


class Volume(Section):
    """A persistent volume claim, mounted in every step."""

    claim: str = Field(..., description="name of the PersistentVolumeClaim")
    path: str = Field(..., description="mount path")
    read_only: bool = Field(default=False, description="whether it is mounted read-only")
