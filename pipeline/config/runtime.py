"""The sections `trainer.threads`, `gpu` and `profile`: how TensorFlow uses a machine. None of it decides the model."""

from __future__ import annotations

import os
from typing import Literal, Optional

from tfx_estimator.pipeline.config.section import MAX_STEPS, Field, Section, number

# Folder in a training's, with a folder for each task.
PROFILES = "profile"
# Files in each profile's folder.
PROFILE_JSON, PROFILE_TEXT = "summary.json", "summary.txt"
# More than this makes files that TensorBoard does not open.
_MOST_STEPS = 1000
# NVIDIA's driver has an entry here for each GPU.
_GPUS = "/proc/driver/nvidia/gpus"


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
