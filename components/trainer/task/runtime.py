"""What is declared of threads, GPUs and kernels: set before TensorFlow's first op, and written into the task's log.

What TensorFlow reads from the environment is there already: see `TrainerSection.environment`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from tfx_estimator.pipeline.config.trainer import TrainerSection

_INTER_OP_THREADS = "TF_NUM_INTEROP_THREADS"


def apply(section: TrainerSection, spin: bool) -> None:
    """Sets it; imports TensorFlow unless all is as TensorFlow has it."""
    if section.environment or section.gpu.is_declared or not spin:
        for line in _apply(section, spin):
            sys.stdout.write(f"runtime: {line}\n")


def allow_ops(workers: int) -> None:
    """Has TensorFlow run as many ops at the same time as the tasks of parameter servers need, if it was told fewer.

    They wait for each other for ever with the one thread that a task's one core gives them, or with too few that the
    environment names.
    """
    import tensorflow as tf

    least, said = workers + 1, os.environ.get(_INTER_OP_THREADS)
    if int(said or 0) < least:
        os.environ[_INTER_OP_THREADS] = str(least)
        if said:
            sys.stdout.write(
                f"runtime: ops at the same time: {least}, one more than there are workers, and not {said}, as "
                f"{_INTER_OP_THREADS} said: the servers would wait for each other for ever\n"
            )
    # Declared for fewer workers than a cluster of somebody else's has.
    if 0 < tf.config.threading.get_inter_op_parallelism_threads() < least:
        tf.config.threading.set_inter_op_parallelism_threads(least)


def _apply(section: TrainerSection, spin: bool) -> Iterator[str]:
    """Sets what is declared, and says what is in effect."""
    import tensorflow as tf
    from tensorflow.python.eager import context
    from tensorflow.python.util import _pywrap_util_port

    if not spin:
        # Of the pools that the process shares; a session asks for its own: see `make_run_config`. What is there for
        # it, `tf.compat.v1.enable_eager_execution(config)`, does nothing in TensorFlow 2.
        config = tf.compat.v1.ConfigProto()
        config.experimental.disable_thread_spinning = True
        context.context()._config = config
        yield "threads that wait: asleep at once"
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
