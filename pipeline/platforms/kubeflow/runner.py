"""KubeflowV2Runner: TFX's runner of the same name, for Kubeflow Pipelines 2 in place of Vertex AI."""

from __future__ import annotations

import os
from typing import Any, Optional

from tfx.orchestration.kubeflow.v2.kubeflow_v2_dag_runner import KubeflowV2DagRunner
from tfx.orchestration.pipeline import Pipeline

from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.platforms.kubeflow.adapt import adapt
from tfx_estimator.pipeline.platforms.pipeline_spec import set_defaults
from tfx_estimator.pipeline.platforms.rehearsal.records import write
from tfx_estimator.pipeline.runners.compiling import text_of

logger = get_logger("kubeflow")


class KubeflowV2Runner(KubeflowV2DagRunner):
    """Compiles any TFX pipeline to a PipelineSpec that Kubeflow Pipelines 2 executes.

        config = KubeflowV2DagRunnerConfig(default_image="registry.example/mine@sha256:…")
        KubeflowV2Runner(config, output_filename="pipeline.yaml").run(pipeline)

    The image needs both tfx-estimator and TFX. TFX's CLI recognizes this as its own runner, with `--engine vertex`.
    The file is JSON if its name ends in .json, as the default does, else YAML.

    Args:
        config: TFX's KubeflowV2DagRunnerConfig: the image, and what else the steps run with.
        output_dir: Folder of the file; None is the current one.
        output_filename: Its name; None is pipeline.json.
    """

    def run(
        self, pipeline: Pipeline, parameter_values: Optional[dict[str, Any]] = None, write_out: Optional[bool] = True
    ) -> dict[str, Any]:
        """Compiles a pipeline; returns the PipelineSpec as JSON.

        Args:
            parameter_values: Override the defaults of runtime parameters.
            write_out: Whether the file is written.

        Raises:
            DeclarationError: A step needs a resolver that cannot be replaced.
        """
        self._config.use_pipeline_spec_2_1 = True
        job = super().run(pipeline, parameter_values, write_out=False)
        set_defaults(job, pipeline)
        spec, notes = adapt(job)
        for note in notes:
            logger.info(note)
        if write_out:
            # TFX's CLI may have set both attributes.
            file = os.path.join(self._output_dir, self._output_filename)
            write(file, text_of([spec], file).encode())
        return spec
