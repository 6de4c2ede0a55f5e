"""Says where a machine has GPUs, and the TensorFlow that is installed there can use none."""

from __future__ import annotations

from tfx_estimator.components.trainer.cluster.plan import gpu_count
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.config.distribution import Devices

logger = get_logger("trainer")


def warn_of_idle_gpus(devices: Devices) -> None:
    """Warns of GPUs that are there, and paid for, and stay idle: the default image's TensorFlow is built for CPUs.

    Args:
        devices: Of training; whoever declares CPUs wants no GPU.
    """
    if devices.cpu or not (there := gpu_count()):
        return
    # The import is slow, so it is done only on machines with GPUs.
    import tensorflow as tf

    if not tf.test.is_built_with_cuda():
        logger.warning(
            f"this machine has {there} GPUs, and TensorFlow {tf.__version__} is installed without CUDA: training uses "
            f"CPUs only; build the image with --build-arg LOCK={stacks.current().lock}, see docs/container.md, or "
            "remove the accelerators"
        )
