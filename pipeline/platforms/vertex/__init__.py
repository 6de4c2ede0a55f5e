"""Vertex AI: its pipelines, and custom jobs, in which a step may train."""

# The declaration comes first: it imports the section of this platform, which stands on the declaration's ground.
import tfx_estimator.pipeline.config  # noqa: F401
