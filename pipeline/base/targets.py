"""Targets by the names that scripts of earlier releases import, which `tfx-estimator copy` had written."""

VERTEX, KUBEFLOW = "vertex", "kubeflow"
