"""The sections `trainer.threads` and `trainer.gpu`: how TensorFlow uses a machine. None of it decides the model."""

from __future__ import annotations

import os
from typing import Literal, Optional

from pydantic.v1 import Field, conint

from tfx_estimator.pipeline.config.section import Section

# NVIDIA's driver has an entry here for each GPU.
_GPUS = "/proc/driver/nvidia/gpus"

_threads = conint(ge=1, le=1024)


class Threads(Section):
    """TensorFlow's pools of threads, in each task."""

    intra_op: Optional[_threads] = Field(  # type: ignore[valid-type]
        default=None, description="threads inside one op; null is one a core. For small networks 1 costs less CPU"
    )
    inter_op: Optional[_threads] = Field(  # type: ignore[valid-type]
        default=None, description="ops that run at the same time; null is one a core"
    )
    spinning: Optional[bool] = Field(
        default=None,
        description="threads look for work a while before they sleep; null: not where one CPU trains alone",
    )


class Gpu(Section):
    """How TensorFlow uses the GPUs of each task; without effect where there is none."""

    memory_growth: bool = Field(default=False, description="takes memory as it is needed, not all at the start")
    memory_limit_mb: Optional[conint(ge=16, le=2**24)] = Field(  # type: ignore[valid-type]
        default=None, description="most memory of each GPU, in MiB; null is all"
    )
    allocator: Optional[Literal["cuda_malloc_async"]] = Field(
        default=None, description="of memory; null is TensorFlow's own (TF_GPU_ALLOCATOR)"
    )
    thread_mode: Optional[Literal["global", "gpu_private", "gpu_shared"]] = Field(
        default=None, description="whose threads start kernels; null is global (TF_GPU_THREAD_MODE)"
    )

    @property
    def is_declared(self) -> bool:
        """Is anything of it said."""
        return self != Gpu()


def has_gpu() -> bool:
    """Returns whether this machine has a GPU of NVIDIA's; asks no TensorFlow."""
    return os.path.isdir(_GPUS)


def count_gpus() -> int:
    """Returns how many there are."""
    return len(os.listdir(_GPUS)) if has_gpu() else 0
