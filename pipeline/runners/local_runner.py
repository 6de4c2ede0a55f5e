"""Runs a declaration: with `python local_runner.py`, or with TFX's CLI.

    tfx pipeline create --engine local --pipeline_path local_runner.py
    tfx run create --engine local --pipeline_name NAME

NAME is the declaration's `name`. `tfx-estimator copy local_runner local_runner.py` writes this file.
"""

import os

from tfx_estimator.pipeline.runners import local

# A preset, or a YAML file of your own.
DECLARATION = os.environ.get("TFX_ESTIMATOR_DECLARATION", "digits")
# The folder of all runs.
WORKDIR = os.environ.get("TFX_ESTIMATOR_WORKDIR", "runs")

if __name__ == "__main__":
    local.main(DECLARATION, WORKDIR)
