"""Trains a declaration as its pipeline does, up to the Trainer: nothing is evaluated, blessed or pushed."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Optional

from tfx.proto.orchestration import pipeline_pb2

from tfx_estimator.pipeline.config import Loaded
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.report.artifacts import Outputs, read_outputs
from tfx_estimator.pipeline.run.view import View
from tfx_estimator.pipeline.runners.local import LocalRunner, prepare

TRAINER = "Trainer"


def train(loaded: Loaded, folders: PipelineFolders, view: View) -> Outputs:
    """Trains; what was done before, the examples of another candidate for one, comes from TFX's cache.

    Args:
        folders: Where the first of the candidates keeps its things; all are trained under its name.
        view: Is told how each component goes.

    Raises:
        TfxEstimatorError: A component failed.
    """
    declaration = loaded.declaration.copy(update={"name": folders.name})
    paths = list(sys.path)
    try:
        _UpToTrainer(view).run(prepare(replace(loaded, declaration=declaration), folders))
    finally:
        # Another candidate may have modules of the same names.
        sys.path[:] = paths
    components = [{"node": each.node, "execution_id": each.execution_id} for each in view.runs]
    return read_outputs(folders.metadata, components)


class _UpToTrainer(LocalRunner):
    def run_with_ir(
        self, pipeline: pipeline_pb2.Pipeline, run_options: Optional[pipeline_pb2.RunOptions] = None
    ) -> None:
        """Runs the components in topological order, the Trainer last."""
        names = [node.pipeline_node.node_info.id for node in pipeline.nodes]
        del pipeline.nodes[names.index(TRAINER) + 1 :]
        super().run_with_ir(pipeline, run_options)
