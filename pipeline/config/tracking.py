"""The `tracking` section: experiment trackers that also record a run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.section import Field, Section

_WITH_USER = re.compile(r"https?://[^/?#]*@", re.IGNORECASE)


class TrackingSection(Section):
    """Experiment trackers that also record a run; TensorBoard's events are always written."""

    mlflow: Optional[str] = Field(
        None, "MLflow tracking URI: http://HOST:PORT, sqlite:////FOLDER/mlflow.db, or a folder", operational=True
    )


def check_tracking(section: TrackingSection) -> Iterator[Problem]:
    """Refuses a password in the address, without showing it."""
    if section.mlflow and _WITH_USER.match(section.mlflow):
        what = "it contains a user or password, which declaration.yaml and report.html would show and upload"
        todo = "remove it, and set the variables MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        yield Problem("tracking.mlflow", what, "http://HOST:PORT", todo)
