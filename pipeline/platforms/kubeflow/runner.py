"""Compiles a declaration for Kubeflow Pipelines 1, by TFX's own command line.

    tfx pipeline compile --engine kubeflow --pipeline_path kubeflow_runner.py
    tfx pipeline create --engine kubeflow --pipeline_path kubeflow_runner.py

`tfx-estimator copy kubeflow_runner kubeflow_runner.py` writes this file.
"""

import os

from tfx_estimator.pipeline.platforms.registry import KUBEFLOW
from tfx_estimator.pipeline.runners import service_runner

# A YAML file of your own, with a section `deploy`.
DECLARATION = os.environ.get("TFX_ESTIMATOR_DECLARATION", "mine.yaml")

if __name__ == "__main__":
    service_runner.main(DECLARATION, KUBEFLOW)
