"""Names of targets that scripts of earlier releases import, which `tfx-estimator copy` wrote; see platforms.registry."""

VERTEX, KUBEFLOW = "vertex", "kubeflow"
