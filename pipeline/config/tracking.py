"""The `tracking` section: where else a run is written down, for comparing runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.section import Field, Section

_WITH_USER = re.compile(r"https?://[^/?#]*@", re.IGNORECASE)


class TrackingSection(Section):
    """Where else a run is written down; TensorBoard's events are always there."""

    mlflow: Optional[str] = Field(
        None,
        "MLflow's tracking URI: http://HOST:PORT, sqlite:////FOLDER/mlflow.db, or a folder, which becomes a file store",
        operational=True,
    )


def check_tracking(section: TrackingSection) -> Iterator[Problem]:
    """Refuses a password in the address; the problem does not show it."""
    if section.mlflow and _WITH_USER.match(section.mlflow):
        what = "it holds a user or password, which declaration.yaml and report.html would show, and upload"
        todo = "remove it, and set the variables MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        yield Problem("tracking.mlflow", what, "http://HOST:PORT", todo)
