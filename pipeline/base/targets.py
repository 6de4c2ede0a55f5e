"""Names of targets, for the scripts that earlier releases' `tfx-estimator copy` wrote; others ask platforms.registry."""

VERTEX, KUBEFLOW = "vertex", "kubeflow"
