"""One training task, always a fresh process.

Fresh, because collectives and logical devices must be set up before any TensorFlow op runs, and a local TFX runner has
long since run some.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, Optional

from tfx_estimator.components.trainer.cluster.plan import VISIBLE_GPUS, visible_gpus
from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.protocol.events import STOPPED, Event, ProgressWriter, StoppedByRequestError, beat
from tfx_estimator.components.trainer.protocol.task_spec import COSTS, DRY_RUN, TaskFiles, TaskSpec
from tfx_estimator.pipeline.base.cpus import available_cpus, cpu_quota
from tfx_estimator.pipeline.base.ending.keeper import keep
from tfx_estimator.pipeline.base.ending.leaving import leave_within
from tfx_estimator.pipeline.base.errors import TfxEstimatorError, to_json
from tfx_estimator.pipeline.base.files import write_json
from tfx_estimator.pipeline.base.installed import uncollected
from tfx_estimator.pipeline.user_source.faults import note_ends, note_stacks
from tfx_estimator.pipeline.user_source.frames import unwrapped, user_lines, without_stacks

if TYPE_CHECKING:
    from tfx_estimator.components.trainer.job import TaskContext

# What TensorFlow raises if another task has gone, or a port was taken.
_PEER_ERRORS = ("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError", "PeerLostError")
_PEER_WORDS = (
    "Could not start gRPC server",
    "Collective ops is aborted",
    "oordination service",
)

# Grace period for leftover threads; must stay below stall_timeout.
# What a run_fn leaves may be its model on the way to a bucket: to that only the share applies.
_EXIT_SECONDS, _EXIT_SHARE = 30.0, 0.5
# Of these, until a task is killed that Python itself cannot end.
_KEEPERS_SHARE = 1.75
_INTRA_OP, _INTER_OP = "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"


def main(argv: list[str]) -> int:
    """Runs the task."""
    job_path, spec_path = argv
    task = TaskSpec.load(spec_path)
    files = TaskFiles(os.path.dirname(spec_path), task.name, task.attempt)
    # From here on in a child, however the user's code ends, and whatever it leaves behind.
    end_within = keep(task.supervisor_pid)
    _enter_network(task)
    beat(files.alive)
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
        # Heavy, and only after the lines above: a supervisor that dies during the import leaves no orphan.
        with uncollected():
            context, run = _load(job_path, task, files)
        code = _run(run, context)
        work_is_done()
        seconds = _seconds_to_exit(context)
        leave_within(seconds, code, _teller(context))
        end_within(code, _KEEPERS_SHARE * seconds)
    except BaseException as error:
        _fail(error, files)
    return code


def _run(run: Callable[[TaskContext], None], context: TaskContext) -> int:
    """Does the task's work; returns the exit code."""
    try:
        run(context)
    except StoppedByRequestError:
        context.progress.write(Event.STOPPED)
        return STOPPED
    return 0


def _seconds_to_exit(context: TaskContext) -> float:
    """Grace period for leftover threads, in seconds."""
    from tfx_estimator.components.trainer.settings import RUN_FN

    share = _EXIT_SHARE * context.settings.stall_timeout
    is_run_fn = context.job.path == RUN_FN and context.task.type != DRY_RUN
    return share if is_run_fn else min(_EXIT_SECONDS, share)


def _teller(context: TaskContext) -> Optional[Callable[[str], None]]:
    """Returns what tells the user of it that something was cut off; None where nothing was to come of it."""
    if context.task.type == DRY_RUN:
        return None
    done = f"the work of {context.task.name} is done"
    return lambda text: context.progress.write(Event.NOTICED, text=f"{done}; {text}: wait for it in your own code")


def _fail(error: BaseException, files: TaskFiles) -> NoReturn:
    """Says what went wrong, as far as that can be written, and ends this process."""
    code = 1
    try:
        # On a full disk neither is possible.
        with contextlib.suppress(OSError):
            traceback.print_exc()
        code = error.exit_code if isinstance(error, TfxEstimatorError) else code
        with contextlib.suppress(OSError):
            _write_error(files.error, error)
    finally:
        # Not by the interpreter's own way out: TensorFlow's servers may wait there for tasks that have gone.
        os._exit(code)


def _load(job_path: str, task: TaskSpec, files: TaskFiles) -> tuple[TaskContext, Callable[[TaskContext], None]]:
    """Imports what the task needs; returns what it does, and the argument of that."""
    from tfx_estimator.components.trainer.task import light_imports

    light_imports.apply()
    from tfx_estimator.components.trainer.job import TaskContext
    from tfx_estimator.components.trainer.task import paths, runtime
    from tfx_estimator.pipeline.base.stack.estimator import bring_back_estimator

    # Before the user's code, on each path: it may say `tf.estimator` in a run_fn as well.
    bring_back_estimator()
    context = TaskContext(Job.load(job_path), task, ProgressWriter(files.progress))
    runtime.apply(context.settings.section, context.settings.spinning)
    if task.type == DRY_RUN:
        from tfx_estimator.components.trainer.dry_run import costs, trial

        return context, (costs if context.job.path == COSTS else trial).run
    return context, paths.path_of(context.job).run


def keep_to_quota(threads: Optional[int], tf_config: str = "") -> None:
    """Has TensorFlow make as many threads as a container may use CPUs; what is declared, or exported, goes first.

    By itself it makes one for each CPU of the machine.

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


def _enter_network(task: TaskSpec) -> None:
    """Joins the cluster's private network, before any thread is there."""
    if task.network:
        from tfx_estimator.components.trainer.cluster.private_network import enter

        enter(task.network)


def _write_error(path: str, error: BaseException) -> None:
    """Leaves the error for the supervisor, with the lines of the user's code if there are any."""
    ours = isinstance(error, TfxEstimatorError)
    name, text = type(error).__name__, str(error)
    peer = name in _PEER_ERRORS or (not ours and any(word in text for word in _PEER_WORDS))
    lines = [] if ours else user_lines(error)
    kind, inner = unwrapped(text) if not ours and not peer else ("", "")
    name, text = kind or name, without_stacks(inner or text)
    foreign = {"type": name, "what": text, "expected": "", "todo": "mend the code above" if lines else ""}
    said = {
        **(to_json(error) if isinstance(error, TfxEstimatorError) else foreign),
        # Where it was all the same, if no code of the user's took part.
        "where": "" if ours else "".join((lines or traceback.format_tb(error.__traceback__))[-3:]).rstrip(),
        "peer": peer,
    }
    write_json(path, said)
