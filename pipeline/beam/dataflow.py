"""Google's Dataflow, with this package on its workers."""

from __future__ import annotations

import tempfile
from typing import Any

from apache_beam import Pipeline
from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions
from apache_beam.runners.dataflow import dataflow_runner

from tfx_estimator.pipeline.beam.package import build_sdist


class DataflowRunner(dataflow_runner.DataflowRunner):
    """Beam's, which stages this package as well. Beam's checks know it by this name."""

    def run_pipeline(self, pipeline: Pipeline, options: PipelineOptions, *args: Any, **kwargs: Any) -> Any:
        """Runs it.

        Args:
            pipeline: What to run.
            options: Beam's.
            *args: As Beam has them.
            **kwargs: As Beam has them.

        Returns:
            Beam's result.
        """
        setup = options.view_as(SetupOptions)
        with tempfile.TemporaryDirectory() as folder:
            setup.extra_packages = [*(setup.extra_packages or ()), build_sdist(folder)]
            return super().run_pipeline(pipeline, options, *args, **kwargs)
