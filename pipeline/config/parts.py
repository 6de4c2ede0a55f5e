"""How many parts of a batch are computed at the same time: `trainer.parallel_parts`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Optional

from tfx_estimator.pipeline.base.cpus import available_cpus
from tfx_estimator.pipeline.config.runtime import has_gpu

if TYPE_CHECKING:
    from tfx_estimator.pipeline.config.trainer import TrainerSection

AUTO = "auto"
# Built-in networks that compute each example by itself, and need no look to know.
BY_EXAMPLE = ("mnist_cnn", "cifar_cnn")
# Of `auto`: more parts take longer to trace than they save, and each holds gradients of its own; a kernel wants some
# examples to work on.
_MOST, _LEAST_EXAMPLES = 8, 16


def parts_at_once(section: TrainerSection) -> int:
    """Returns how many parts of a replica's batch a task of this machine computes at the same time.

    `auto` is as many as there are CPUs for each replica of the task, or ops at the same time, where it is known that
    the result is the same.
    """
    if section.parallel_parts != AUTO:
        return int(section.parallel_parts)
    train = section.distribution.train
    # A worker that reads its weights from servers would read them for each part.
    whole = section.xla or section.is_divided or train.asynchronous or train.traits.on_tpu or has_gpu()
    if whole or section.model not in BY_EXAMPLE:
        return 1
    at_once = [available_cpus(), section.threads.inter_op, _number(os.environ.get("TF_NUM_INTEROP_THREADS"))]
    examples = section.global_batch_size // (train.replicas * section.gradient_accumulation)
    return max(min(min(filter(None, at_once)) // train.devices.count, examples // _LEAST_EXAMPLES, _MOST), 1)


def keep_cpus_busy(section: TrainerSection) -> bool:
    """Tells whether the parts keep the CPUs at work, so that each op needs one thread."""
    parts = parts_at_once(section) * section.distribution.train.devices.count
    # What the user has exported goes first.
    told = "TF_NUM_INTRAOP_THREADS" in os.environ
    return parts_at_once(section) > 1 and available_cpus() < 2 * parts and not has_gpu() and not told


def _number(text: Optional[str]) -> int:
    return int(text) if text and text.isdecimal() else 0
