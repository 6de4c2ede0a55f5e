"""As many threads as a container may use CPUs: TensorFlow by itself makes one for each CPU of the machine."""

from __future__ import annotations

import os
import sys
from typing import Optional

from tfx_estimator.pipeline.cpus import available_cpus, cpu_quota

_INTRA_OP, _INTER_OP = "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"


def keep_to_quota(threads: Optional[int]) -> None:
    """Tells TensorFlow, before it is imported, and the task's log; what is declared, or exported, goes first.

    Args:
        threads: Of a task that shares the container with others; None is one for each CPU that the container may use.
    """
    there, available = len(os.sched_getaffinity(0)), available_cpus()
    if available == there:
        return
    for name in (_INTRA_OP, _INTER_OP):
        os.environ.setdefault(name, str(threads or available))
    sys.stdout.write(
        f"runtime: threads inside one op: {os.environ[_INTRA_OP]}, ops at the same time: {os.environ[_INTER_OP]}; "
        f"this container may use {cpu_quota():g} of {there} CPUs\n"
    )
