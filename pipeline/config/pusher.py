"""The `pusher` section: where a blessed model goes."""

from __future__ import annotations

from typing import Optional

from pydantic.v1 import Field

from tfx_estimator.pipeline.config.section import Section


class PusherSection(Section):
    """Where a blessed model is pushed, into a new versioned folder."""

    destination: Optional[str] = Field(default=None, description="a folder; null is `serving` in the work folder")
