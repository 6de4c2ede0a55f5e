"""Vertex AI: pipelines, and custom jobs in which a step may train."""

# Imported first: it imports this platform's section, which imports the declaration's own modules.
import tfx_estimator.pipeline.config  # noqa: F401
