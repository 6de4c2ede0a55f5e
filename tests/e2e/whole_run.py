"""The whole command line in a process that stops itself at a publication: see tests/faults/forks.py."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import types

# All imports of a run, once.
import tensorflow_data_validation  # noqa: F401
import tensorflow_model_analysis  # noqa: F401
from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_run_executor  # noqa: F401

from tests.faults.file_operations import stop_here
from tests.forked_tasks import forked
from tfx_estimator.__main__ import main
from tfx_estimator.components.pusher.executor import Executor
from tfx_estimator.components.trainer import export
from tfx_estimator.components.trainer.estimator import path  # noqa: F401
from tfx_estimator.components.trainer.supervisor import process
from tfx_estimator.pipeline import build  # noqa: F401
from tfx_estimator.pipeline.experiments.compare import answers
from tfx_estimator.pipeline.run import console, executed, results  # noqa: F401
from tfx_estimator.pipeline.runners import local  # noqa: F401

_PLACES = {"Pusher": (Executor, "Do"), "Trainer": (export, "publish")}


def run(arguments: list[str], stop: str = "", fresh: int = 1) -> int:
    """Calls the command line with the arguments; after `others`, the program of tests/e2e/others.

    Args:
        stop: The component at whose publication to stop.
        fresh: Number of containers that start like for users before others are forked.
    """
    assert threading.active_count() == 1
    if arguments[0] == "others":
        from tests.e2e.others import run_others

        return run_others.run(arguments[1:])
    os.environ["COLUMNS"] = "200"
    if stop:
        owner, name = _PLACES[stop]
        publish = getattr(owner, name)

        def publish_later(*args, **options):
            stop_here()
            return publish(*args, **options)

        setattr(owner, name, publish_later)
    with forked(containers=fresh):
        answers.subprocess = types.SimpleNamespace(**{**vars(subprocess), "run": _after_the_first(_fork)})
        return main(arguments)


def _fork(words: list[str], *, env: dict[str, str], **_) -> subprocess.CompletedProcess:
    """Replaces `subprocess.run` by a copy of this process, like for training tasks."""
    with process.subprocess.Popen(words, stdout=sys.stdout, env=env) as child:
        return subprocess.CompletedProcess(words, child.wait())


def _after_the_first(fork):
    """Starts the first like for users."""
    starts = iter([subprocess.run])
    return lambda words, **options: next(starts, fork)(words, **options)
