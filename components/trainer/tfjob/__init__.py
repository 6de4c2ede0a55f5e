"""Training in a TFJob, of the Kubeflow training operator: its manifest, what starts and follows it, and its pods."""
