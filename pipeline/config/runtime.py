"""`trainer.threads`, `gpu`, `profile`, `tensorboard`, `parallel_parts`. None affects the model."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, Optional

from tfx_estimator.pipeline.base.cpus import available_cpus
from tfx_estimator.pipeline.config.section import MAX_STEPS, Field, Section, number

if TYPE_CHECKING:
    from tfx_estimator.pipeline.config.trainer import TrainerSection

# Subfolder of a training's folder, with a folder per task.
PROFILES = "profile"
# Files in each task's profile folder.
PROFILE_JSON, PROFILE_TEXT = "summary.json", "summary.txt"
# TensorBoard does not open the files of more steps.
_MOST_STEPS = 1000
# Each is a file of its own in the events.
_MOST_IMAGES = 1000
# NVIDIA's driver has an entry here for each GPU.
_GPUS = "/proc/driver/nvidia/gpus"
AUTO = "auto"
# Built-in networks without operations across examples.
BY_EXAMPLE = ("mnist_cnn", "cifar_cnn")
# Limits of `auto`: more parts take longer to trace than they save, and each holds its own gradients; kernels need some
# examples to be efficient.
_MOST_PARTS, _LEAST_EXAMPLES = 8, 16


class Threads(Section):
    """TensorFlow's thread pools, in each task."""

    intra_op: Optional[int] = number(None, 1, 1024, "threads per op; null is one per core; try 1 for small networks")
    inter_op: Optional[int] = number(None, 1, 1024, "ops that run at the same time; null is one per core")
    spinning: Optional[bool] = Field(
        None, "idle threads spin for a while before they sleep; null is true, except if one CPU trains alone"
    )


class Gpu(Section):
    """How TensorFlow uses the GPUs of each task; no effect without GPUs."""

    memory_growth: bool = Field(False, "allocate memory as needed, not all at the start")
    memory_limit_mb: Optional[int] = number(None, 16, 2**24, "memory limit of each GPU, in MiB; null is all")
    allocator: Optional[Literal["cuda_malloc_async"]] = Field(None, "TF_GPU_ALLOCATOR; null is TensorFlow's own")
    thread_mode: Optional[Literal["global", "gpu_private", "gpu_shared"]] = Field(
        None, "which threads launch kernels; null is global (TF_GPU_THREAD_MODE)"
    )

    @property
    def is_declared(self) -> bool:
        """True if any option is declared."""
        return self != Gpu()


class Profile(Section):
    """A profile of some steps of each training task, for TensorBoard and as a summary."""

    start_step: int = number(100, 1, MAX_STEPS, "global step after which profiling starts, past the warm-up")
    steps: int = number(20, 1, _MOST_STEPS, "number of steps")


class TensorBoard(Section):
    """What training writes for TensorBoard in addition to its curves."""

    images: int = number(0, 0, _MOST_IMAGES, "images of the first batch, as the network gets them; 0 is none")
    histograms: bool = Field(False, "histograms of the trained variables, with each checkpoint")

    @property
    def is_declared(self) -> bool:
        """True if any option is declared."""
        return self != TensorBoard()


def has_gpu() -> bool:
    """Returns whether this machine has an NVIDIA GPU, without TensorFlow."""
    return os.path.isdir(_GPUS)


def count_gpus() -> int:
    """Returns the number of NVIDIA GPUs."""
    return len(os.listdir(_GPUS)) if has_gpu() else 0


def parts_at_once(section: TrainerSection) -> int:
    """Returns how many parts of a replica's batch a task on this machine computes concurrently.

    `auto` is the number of CPUs per replica of the task, or of concurrent ops if lower; 1 unless the result is known
    to be the same.
    """
    if section.parallel_parts != AUTO:
        return int(section.parallel_parts)
    train = section.distribution.train
    # With parameter servers, a worker would fetch the weights for each part.
    whole = section.xla or section.is_divided or train.asynchronous or train.takes("tpu") or has_gpu()
    if whole or section.model not in BY_EXAMPLE:
        return 1
    at_once = [available_cpus(), section.threads.inter_op, int(os.environ.get("TF_NUM_INTEROP_THREADS") or 0)]
    examples = section.global_batch_size // (train.replicas * section.gradient_accumulation)
    return max(min(min(filter(None, at_once)) // train.devices.count, examples // _LEAST_EXAMPLES, _MOST_PARTS), 1)


def keep_cpus_busy(section: TrainerSection) -> bool:
    """Returns whether the concurrent parts keep the CPUs busy, so that each op needs only one thread."""
    parts = parts_at_once(section) * section.distribution.train.devices.count
    # The environment takes precedence.
    is_exported = "TF_NUM_INTRAOP_THREADS" in os.environ
    return parts_at_once(section) > 1 and available_cpus() < 2 * parts and not has_gpu() and not is_exported
