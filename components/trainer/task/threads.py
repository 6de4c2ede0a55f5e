"""As many threads as a container may use CPUs: TensorFlow by itself makes one for each CPU of the machine."""

from __future__ import annotations

import json
import os
import sys
from typing import Optional

from tfx_estimator.pipeline.base.cpus import available_cpus, cpu_quota

_INTRA_OP, _INTER_OP = "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"


def keep_to_quota(threads: Optional[int], tf_config: str = "") -> None:
    """Tells TensorFlow, before it is imported, and the task's log; what is declared, or exported, goes first.

    Args:
        threads: Inside one op, of a task that shares the container with others; None is one for each CPU that the
            container may use.
        tf_config: The task's cluster; with parameter servers tasks wait for each other for ever where they run fewer
            ops at the same time than there are workers, and one.
    """
    there, available = len(os.sched_getaffinity(0)), available_cpus()
    if available == there:
        return
    # A task beside those that train has one thread inside an op, and many to serve.
    ops = threads if threads and threads > 1 else available
    os.environ.setdefault(_INTRA_OP, str(threads or available))
    os.environ.setdefault(_INTER_OP, str(max(ops, _least_ops(tf_config))))
    sys.stdout.write(
        f"runtime: threads inside one op: {os.environ[_INTRA_OP]}, ops at the same time: {os.environ[_INTER_OP]}; "
        f"this container may use {cpu_quota():g} of {there} CPUs\n"
    )


def _least_ops(tf_config: str) -> int:
    cluster = json.loads(tf_config).get("cluster", {}) if tf_config else {}
    return len(cluster.get("chief", ())) + len(cluster.get("worker", ())) + 1 if cluster.get("ps") else 1
