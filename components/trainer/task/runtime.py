"""Runtime settings (threads, GPUs, kernels), applied before TensorFlow's first op, and written to the task's log.

For those that TensorFlow reads from the environment see `TrainerSection.environment`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from tfx_estimator.pipeline.config.trainer import TrainerSection

_INTER_OP_THREADS = "TF_NUM_INTEROP_THREADS"


def apply(section: TrainerSection, spin: bool) -> None:
    """Applies the settings; does not import TensorFlow if all are defaults."""
    if section.environment or section.gpu.is_declared or not spin:
        for line in _apply(section, spin):
            sys.stdout.write(f"runtime: {line}\n")


def allow_ops(workers: int) -> None:
    """Raises the number of inter-op threads to the minimum for parameter servers.

    With fewer, such as the one thread of a task with one core, their tasks deadlock.
    """
    import tensorflow as tf

    least, exported = workers + 1, os.environ.get(_INTER_OP_THREADS)
    if int(exported or 0) < least:
        os.environ[_INTER_OP_THREADS] = str(least)
        if exported:
            sys.stdout.write(
                f"runtime: inter-op threads: {least}, one more than there are workers, instead of "
                f"{_INTER_OP_THREADS}={exported}, with which parameter servers deadlock\n"
            )
    # The declaration may be for fewer workers than an external cluster has.
    if 0 < tf.config.threading.get_inter_op_parallelism_threads() < least:
        tf.config.threading.set_inter_op_parallelism_threads(least)


def _apply(section: TrainerSection, spin: bool) -> Iterator[str]:
    """Applies the settings, and yields those in effect."""
    import tensorflow as tf
    from tensorflow.python.eager import context
    from tensorflow.python.util import _pywrap_util_port

    if not spin:
        # For the thread pools of the process; a session has its own: see `make_run_config`. The public function,
        # `tf.compat.v1.enable_eager_execution(config)`, does nothing in TensorFlow 2.
        config = tf.compat.v1.ConfigProto()
        config.experimental.disable_thread_spinning = True
        context.context()._config = config
        yield "thread spinning: off"
    threading, gpu = tf.config.threading, section.gpu
    if section.intra_op:
        threading.set_intra_op_parallelism_threads(section.intra_op)
        yield f"intra-op threads: {threading.get_intra_op_parallelism_threads()}"
    if section.threads.inter_op:
        threading.set_inter_op_parallelism_threads(section.threads.inter_op)
        yield f"inter-op threads: {threading.get_inter_op_parallelism_threads()}"
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
