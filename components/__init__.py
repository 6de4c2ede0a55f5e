"""One package per TFX component. Each step of this project's own imports it first, whoever starts it."""

from tfx_estimator.pipeline.base.environment import check_release

check_release()
