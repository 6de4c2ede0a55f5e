"""Measures the cost of each component of a pipeline."""

from __future__ import annotations

from collections.abc import Sequence

from tfx.orchestration.pipeline import Pipeline

from tests.bench.measure import Clock
from tfx_estimator.pipeline.runners.local import LocalRunner, NodeRun


class CpuListener:
    """Reads the clocks around each component, of this process and of its children that have ended."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, float]] = {}
        self._started = Clock.now()

    def run_started(self, nodes: Sequence[NodeRun]) -> None:
        """Does nothing."""

    def node_started(self, node: str, index: int, total: int) -> None:
        self._started = Clock.now()

    def node_ended(self, run: NodeRun) -> None:
        spent = Clock.now() - self._started
        self.nodes[run.node] = {"cpu": spent.cpu, "wall": spent.wall}


def measured_run(pipeline: Pipeline) -> dict[str, dict[str, float]]:
    """Runs a TFX pipeline, one component after another."""
    listener = CpuListener()
    LocalRunner(listener).run(pipeline)
    return listener.nodes
