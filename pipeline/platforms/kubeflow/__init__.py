"""Kubeflow Pipelines 2."""

# Imported first: it imports this platform's section, which imports the declaration's own modules.
import tfx_estimator.pipeline.config  # noqa: F401
