"""Which steps of a training are profiled."""

from __future__ import annotations

from pydantic.v1 import Field, conint

from tfx_estimator.pipeline.config.section import MAX_STEPS, Section

# Folder in a training's, with a folder for each task.
PROFILES = "profile"
# Files in each profile's folder.
PROFILE_JSON, PROFILE_TEXT = "summary.json", "summary.txt"
# More than this makes files that TensorBoard does not open.
_MOST_STEPS = 1000


class Profile(Section):
    """Some steps of each task that trains, for TensorBoard, and as a summary."""

    start_step: conint(ge=1, le=MAX_STEPS) = Field(  # type: ignore[valid-type]
        default=100, description="global step after which the profile begins: past the first, which build and warm up"
    )
    steps: conint(ge=1, le=_MOST_STEPS) = Field(  # type: ignore[valid-type]
        default=20, description="how many steps"
    )
