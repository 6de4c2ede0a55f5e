"""The Trainer's step, executed against a service."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipeline.platforms.vertex.vertex_ai import Server, load_job
from tfx_estimator.pipeline.platforms.vertex.custom_job import make_plan


@pytest.fixture
def launch(tmp_path, monkeypatch):
    """Executes the step against a server; returns its artifacts."""
    from tfx.types import standard_artifacts

    from tfx_estimator.pipeline.platforms import follow
    from tfx_estimator.pipeline.platforms.vertex import executor
    from tfx_estimator.pipeline.platforms.vertex.custom_jobs import VertexService

    monkeypatch.setattr(executor, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(follow, "_FIRST_WAIT", 0.01)
    plan = make_plan(load_job("deploy.vertex={}"))

    def launch(server: Server) -> dict[str, Any]:
        monkeypatch.setattr(VertexService, "of", server.service)
        outputs = {"model": [standard_artifacts.Model()], "model_run": [standard_artifacts.ModelRun()]}
        for key, (artifact,) in outputs.items():
            artifact.uri = str(tmp_path / key)
        properties = {"custom_job": plan.to_json(), "pipeline_home": "gs://bucket/digits", "train_args": "{}"}
        executor.Executor().Do({}, outputs, properties)
        return outputs

    return launch
