"""The entry point of a training task.

It is always a fresh process: collectives and logical devices must be set up before any TensorFlow op runs, and a local
TFX runner has already run some.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, Optional

from tfx_estimator.components.trainer.cluster.plan import VISIBLE_GPUS, visible_gpus
from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.observers import not_a_number
from tfx_estimator.components.trainer.protocol import events
from tfx_estimator.components.trainer.protocol.task_spec import COSTS, DRY_RUN, UNWRITTEN, TaskFiles, TaskSpec
from tfx_estimator.pipeline.base.cpus import available_cpus, cpu_quota
from tfx_estimator.pipeline.base.ending.keeper import keep
from tfx_estimator.pipeline.base.ending.leaving import leave_within
from tfx_estimator.pipeline.base.errors import TfxEstimatorError, to_json
from tfx_estimator.pipeline.base.files import write_json
from tfx_estimator.pipeline.base.installed import uncollected
from tfx_estimator.pipeline.user_source import opened
from tfx_estimator.pipeline.user_source.faults import note_ends, note_stacks
from tfx_estimator.pipeline.user_source.frames import reason, user_lines

if TYPE_CHECKING:
    from tfx_estimator.components.trainer.job import TaskContext

# Errors of TensorFlow if a peer has gone, or a port is in use.
_PEER_ERRORS = ("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError", "PeerLostError")
_PEER_WORDS = (
    "Could not start gRPC server",
    "Collective ops is aborted",
    "oordination service",
)

# Grace period for leftover threads; must stay below stall_timeout.
# A run_fn's threads may still upload its model: only the share applies to those.
_EXIT_SECONDS, _EXIT_SHARE = 30.0, 0.5
# After this many grace periods the keeper kills a task that Python cannot end.
_KEEPERS_SHARE = 1.75
_INTRA_OP, _INTER_OP = "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"


def main(argv: list[str]) -> int:
    """Runs the task."""
    job_path, spec_path = argv
    task = TaskSpec.load(spec_path)
    files = TaskFiles(os.path.dirname(spec_path), task.name, task.attempt)
    # The code below runs in a child of the keeper, which kills everything that it leaves behind.
    end_within = keep(task.supervisor_pid)
    _enter_network(task)
    events.beat(files.alive)
    work_is_done = note_ends(files.ends)
    if task.type == DRY_RUN:
        note_stacks(files.stacks)
    if task.cpus:
        os.sched_setaffinity(0, task.cpus)
    if task.gpus is not None:
        os.environ[VISIBLE_GPUS] = visible_gpus(task.gpus, os.environ)
    if task.tf_config:
        os.environ["TF_CONFIG"] = task.tf_config
    keep_to_quota(task.threads, task.tf_config)
    try:
        # The heavy imports come after `keep`: a supervisor that dies during them leaves no orphan.
        with uncollected():
            context, run = _load(job_path, task, files)
        code = _run(run, context)
        work_is_done()
        seconds = _seconds_to_exit(context)
        leave_within(seconds, code, _notifier(context))
        end_within(code, _KEEPERS_SHARE * seconds)
    except BaseException as error:
        _fail(error, files)
    return code


def _run(run: Callable[[TaskContext], None], context: TaskContext) -> int:
    """Runs the task's work; returns the exit code."""
    try:
        run(context)
    except events.StoppedByRequestError:
        context.progress.write(events.Event.STOPPED)
        return events.STOPPED
    return 0


def _seconds_to_exit(context: TaskContext) -> float:
    """Returns the grace period for leftover threads."""
    from tfx_estimator.components.trainer.settings import RUN_FN

    share = _EXIT_SHARE * context.settings.stall_timeout
    is_run_fn = context.job.path == RUN_FN and context.task.type != DRY_RUN
    return share if is_run_fn else min(_EXIT_SECONDS, share)


def _notifier(context: TaskContext) -> Optional[Callable[[str], None]]:
    """Returns a function that warns of leftover threads being cut off; None for a dry run, which saves nothing."""
    if context.task.type == DRY_RUN:
        return None
    done = f"the work of {context.task.name} is done"
    return lambda text: context.progress.write(events.Event.NOTICED, text=f"{done}; {text}: wait for it in your code")


def _fail(error: BaseException, files: TaskFiles) -> NoReturn:
    """Writes the error to the log and the error file, and ends this process."""
    code = 1
    try:
        # On a full disk both writes fail.
        with contextlib.suppress(OSError):
            traceback.print_exc()
        # From the hook that each Estimator has.
        if type(error).__name__ == "NanLossDuringTrainingError":
            step = events.ProgressReader(files.progress).step()
            error = not_a_number(f"the loss of step {step}" if step >= 0 else "the loss")
        code = error.exit_code if isinstance(error, TfxEstimatorError) else code
        try:
            _write_error(files.error, error)
        except OSError as unwritten:
            code = UNWRITTEN if unwritten.errno in (errno.ENOSPC, errno.EDQUOT) else code
    finally:
        # Not sys.exit: TensorFlow's servers may wait in their destructors for tasks that have gone.
        os._exit(code)


def _load(job_path: str, task: TaskSpec, files: TaskFiles) -> tuple[TaskContext, Callable[[TaskContext], None]]:
    """Imports the modules of the task; returns its context and its function."""
    from tfx_estimator.components.trainer.task import light_imports

    light_imports.apply()
    from tfx.types.artifact_utils import parse_artifact_dict

    from tfx_estimator.components.read_files import folders_of
    from tfx_estimator.components.trainer.job import TaskContext
    from tfx_estimator.components.trainer.task import paths, runtime
    from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator

    # Before the user's code, on each path: a run_fn may use `tf.estimator`, too.
    bring_back_estimator()
    context = TaskContext(Job.load(job_path), task, events.ProgressWriter(files.progress))
    runtime.apply(context.settings.section, context.settings.spinning)
    if task.type == DRY_RUN:
        from tfx_estimator.components.trainer.dry_run import costs, trial

        return context, (costs if context.job.path == COSTS else trial).run
    artifacts = map(parse_artifact_dict, (context.job.inputs, context.job.outputs))
    own = [context.job.training_dir, *folders_of(*artifacts)]
    return context, functools.partial(opened.noting, paths.run, own=own, into=files.read)


def keep_to_quota(threads: Optional[int], tf_config: str = "") -> None:
    """Sizes TensorFlow's thread pools to the container's CPU quota, unless the declaration or environment sets them.

    TensorFlow's default is one thread per CPU of the machine.

    Args:
        threads: Intra-op threads of a task that shares the container with others; None for the whole quota.
        tf_config: The task's cluster; with parameter servers, fewer inter-op threads than workers plus one deadlock.
    """
    machine, available = len(os.sched_getaffinity(0)), available_cpus()
    if available == machine:
        return
    # A task that does not train has one intra-op thread, but many inter-op threads to serve.
    ops = threads if threads and threads > 1 else available
    os.environ.setdefault(_INTRA_OP, str(threads or available))
    os.environ.setdefault(_INTER_OP, str(max(ops, _least_ops(tf_config))))
    sys.stdout.write(
        f"runtime: intra-op threads: {os.environ[_INTRA_OP]}, inter-op threads: {os.environ[_INTER_OP]}; "
        f"this container may use {cpu_quota():g} of {machine} CPUs\n"
    )


def _least_ops(tf_config: str) -> int:
    cluster = json.loads(tf_config).get("cluster", {}) if tf_config else {}
    return len(cluster.get("chief", ())) + len(cluster.get("worker", ())) + 1 if cluster.get("ps") else 1


def _enter_network(task: TaskSpec) -> None:
    """Joins the cluster's private network; must come before any thread starts."""
    if task.network:
        from tfx_estimator.components.trainer.cluster.private_network import enter

        enter(task.network)


def _write_error(path: str, error: BaseException) -> None:
    """Writes the error for the supervisor, with the user's lines of its traceback, if any."""
    ours = isinstance(error, TfxEstimatorError)
    peer = type(error).__name__ in _PEER_ERRORS or (not ours and any(word in str(error) for word in _PEER_WORDS))
    lines = [] if ours else user_lines(error)
    if lines and "tensorflow" in sys.modules:
        from tfx_estimator.model_fn.bridge.tf1 import lacks

        error = lacks(error, "set trainer.tf1: true, or transform.tf1: true for a preprocessing_fn") or error
    name, text = reason(error)
    foreign = {"type": name, "what": text, "expected": "", "todo": "fix the code above" if lines else ""}
    record = {
        **(to_json(error) if isinstance(error, TfxEstimatorError) else foreign),
        # The last lines of the whole traceback, if none are the user's.
        "where": "" if ours else "".join((lines or traceback.format_tb(error.__traceback__))[-3:]).rstrip(),
        "peer": peer,
    }
    write_json(path, record)
