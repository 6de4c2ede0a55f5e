"""Kubeflow Pipelines 2."""

# The declaration comes first: it imports the section of this platform, which stands on the declaration's ground.
import tfx_estimator.pipeline.config  # noqa: F401
