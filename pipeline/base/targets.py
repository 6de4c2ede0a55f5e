"""Names of targets that scripts written by `tfx-estimator copy` of earlier releases import."""

VERTEX, KUBEFLOW = "vertex", "kubeflow"
