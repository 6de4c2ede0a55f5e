"""TFJobs of the Kubeflow training operator: a whole pipeline in one, or the training of a step."""

# The declaration comes first: it imports the section of this platform, which stands on the declaration's ground.
import tfx_estimator.pipeline.config  # noqa: F401
