"""Kubernetes training jobs (TFJob, TrainJob, JobSet): one runs a whole pipeline, or the training of one step."""

# Imported first: it imports this platform's section, which imports the declaration's own modules.
import tfx_estimator.pipeline.config  # noqa: F401
