"""One package per TFX component. Every step of this project imports it first, under any runner."""

from tfx_estimator.pipeline.base.environment import check_release

check_release()
