"""Training jobs of Kubernetes, TFJob, TrainJob, JobSet: a whole pipeline in one, or the training of a step."""

# The declaration comes first: it imports the section of this platform, which stands on the declaration's ground.
import tfx_estimator.pipeline.config  # noqa: F401
