"""The `tracking` section: where else a run is written down, for comparing runs."""

from __future__ import annotations

from typing import Optional

from tfx_estimator.pipeline.config.section import Field, Section


class TrackingSection(Section):
    """Where else a run is written down; TensorBoard's events are always there."""

    mlflow: Optional[str] = Field(
        None,
        "MLflow's tracking URI: http://HOST:PORT, sqlite:////FOLDER/mlflow.db, or a folder, which becomes a file store",
        operational=True,
    )
