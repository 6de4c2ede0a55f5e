"""One package per TFX component. In a container, each step imports it first, whoever starts the step."""

from tfx_estimator.pipeline.release import check_release

check_release()
