"""What is declared of threads, GPUs and kernels: set before TensorFlow's first op, and written into the task's log.

What TensorFlow reads from the environment is there already: see `TrainerSection.environment`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tfx_estimator.pipeline.config.trainer import TrainerSection


def apply(section: TrainerSection) -> None:
    """Sets it; imports TensorFlow if anything is declared.

    Args:
        section: The declared trainer.
    """
    if section.environment or section.gpu.is_declared:
        for line in _apply(section):
            sys.stdout.write(f"runtime: {line}\n")


def _apply(section: TrainerSection) -> Iterator[str]:
    """Sets what is declared, and says what is in effect."""
    import tensorflow as tf
    from tensorflow.python.util import _pywrap_util_port

    threading, gpu = tf.config.threading, section.gpu
    if section.intra_op:
        threading.set_intra_op_parallelism_threads(section.intra_op)
        yield f"threads inside one op: {threading.get_intra_op_parallelism_threads()}"
    if section.threads.inter_op:
        threading.set_inter_op_parallelism_threads(section.threads.inter_op)
        yield f"ops at the same time: {threading.get_inter_op_parallelism_threads()}"
    if section.onednn is not None:
        yield f"oneDNN: {'on' if _pywrap_util_port.IsMklEnabled() else 'off'}"
    if not gpu.is_declared:
        return
    gpus = tf.config.list_physical_devices("GPU")
    if gpu.memory_limit_mb:
        for each in gpus:
            part = tf.config.LogicalDeviceConfiguration(memory_limit=gpu.memory_limit_mb)
            tf.config.set_logical_device_configuration(each, [part])
    names = ", ".join(each.name for each in gpus) or "none here, trainer.gpu has no effect"
    declared = ", ".join(f"{name}={value}" for name, value in gpu.dict().items() if value)
    yield f"GPUs: {names} ({declared})"
