"""Compiles a declaration for Vertex AI Pipelines, by TFX's own command line.

    tfx pipeline compile --engine vertex --pipeline_path vertex_runner.py
    tfx pipeline create --engine vertex --pipeline_path vertex_runner.py

`tfx-estimator copy vertex_runner vertex_runner.py` writes this file.
"""

import os

from tfx_estimator.pipeline.platforms.registry import VERTEX
from tfx_estimator.pipeline.runners import service_runner

# A YAML file of your own, with a section `deploy`.
DECLARATION = os.environ.get("TFX_ESTIMATOR_DECLARATION", "mine.yaml")

if __name__ == "__main__":
    service_runner.main(DECLARATION, VERTEX)
