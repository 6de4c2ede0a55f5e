"""`trainer.threads`, `gpu`, `profile`, `parallel_parts`: how TensorFlow uses a machine. None decides the model."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, Optional

from tfx_estimator.pipeline.base.cpus import available_cpus
from tfx_estimator.pipeline.config.section import MAX_STEPS, Field, Section, number

if TYPE_CHECKING:
    from tfx_estimator.pipeline.config.trainer import TrainerSection

# Folder in a training's, with a folder for each task.
PROFILES = "profile"
# Files in each profile's folder.
PROFILE_JSON, PROFILE_TEXT = "summary.json", "summary.txt"
# More than this makes files that TensorBoard does not open.
_MOST_STEPS = 1000
# NVIDIA's driver has an entry here for each GPU.
_GPUS = "/proc/driver/nvidia/gpus"
AUTO = "auto"
# Built-in networks that compute each example by itself, and need no look to know.
BY_EXAMPLE = ("mnist_cnn", "cifar_cnn")
# Of `auto`: more parts take longer to trace than they save, and each holds gradients of its own; a kernel wants some
# examples to work on.
_MOST_PARTS, _LEAST_EXAMPLES = 8, 16


class Threads(Section):
    """TensorFlow's pools of threads, in each task."""

    intra_op: Optional[int] = number(
        None, 1, 1024, "threads inside one op; null is one a core. For small networks 1 costs less CPU"
    )
    inter_op: Optional[int] = number(None, 1, 1024, "ops that run at the same time; null is one a core")
    spinning: Optional[bool] = Field(
        None, "threads look for work a while before they sleep; null: not where one CPU trains alone"
    )


class Gpu(Section):
    """How TensorFlow uses the GPUs of each task; without effect where there is none."""

    memory_growth: bool = Field(False, "takes memory as it is needed, not all at the start")
    memory_limit_mb: Optional[int] = number(None, 16, 2**24, "most memory of each GPU, in MiB; null is all")
    allocator: Optional[Literal["cuda_malloc_async"]] = Field(
        None, "of memory; null is TensorFlow's own (TF_GPU_ALLOCATOR)"
    )
    thread_mode: Optional[Literal["global", "gpu_private", "gpu_shared"]] = Field(
        None, "whose threads start kernels; null is global (TF_GPU_THREAD_MODE)"
    )

    @property
    def is_declared(self) -> bool:
        """Is anything of it said."""
        return self != Gpu()


class Profile(Section):
    """Some steps of each task that trains, for TensorBoard, and as a summary."""

    start_step: int = number(
        100, 1, MAX_STEPS, "global step after which the profile begins: past the first, which build and warm up"
    )
    steps: int = number(20, 1, _MOST_STEPS, "how many steps")


def has_gpu() -> bool:
    """Returns whether this machine has a GPU of NVIDIA's; asks no TensorFlow."""
    return os.path.isdir(_GPUS)


def count_gpus() -> int:
    """Returns how many there are."""
    return len(os.listdir(_GPUS)) if has_gpu() else 0


def parts_at_once(section: TrainerSection) -> int:
    """Returns how many parts of a replica's batch a task of this machine computes at the same time.

    `auto` is as many as there are CPUs for each replica of the task, or ops at the same time, where it is known that
    the result is the same.
    """
    if section.parallel_parts != AUTO:
        return int(section.parallel_parts)
    train = section.distribution.train
    # A worker that reads its weights from servers would read them for each part.
    whole = section.xla or section.is_divided or train.asynchronous or train.takes("tpu") or has_gpu()
    if whole or section.model not in BY_EXAMPLE:
        return 1
    at_once = [available_cpus(), section.threads.inter_op, int(os.environ.get("TF_NUM_INTEROP_THREADS") or 0)]
    examples = section.global_batch_size // (train.replicas * section.gradient_accumulation)
    return max(min(min(filter(None, at_once)) // train.devices.count, examples // _LEAST_EXAMPLES, _MOST_PARTS), 1)


def keep_cpus_busy(section: TrainerSection) -> bool:
    """Tells whether the parts keep the CPUs at work, so that each op needs one thread."""
    parts = parts_at_once(section) * section.distribution.train.devices.count
    # What the user has exported goes first.
    told = "TF_NUM_INTRAOP_THREADS" in os.environ
    return parts_at_once(section) > 1 and available_cpus() < 2 * parts and not has_gpu() and not told
