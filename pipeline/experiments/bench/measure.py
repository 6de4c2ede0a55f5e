"""Measures one training under one strategy, in real task processes under the Trainer's supervisor."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Optional

from tfx_estimator.components.trainer.cluster.plan import VISIBLE_GPUS
from tfx_estimator.components.trainer.jobs import supervise
from tfx_estimator.components.trainer.protocol.measurement import MEASURE, TaskMeasurement, Window
from tfx_estimator.components.trainer.supervisor.failure import RESUMES
from tfx_estimator.pipeline.base.errors import StoppedError, TfxEstimatorError, UserCodeError
from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.experiments.bench.strategies import CPU, GPU, Plan, Run, available_cores
from tfx_estimator.pipeline.experiments.training import TrainerInputs

# Minimum share of the cores left to the tasks, below which nothing can be estimated.
_LEAST_LEFT = 0.05
_LONGEST_NAME = 150
_DERIVED = ("examples_per_step", "examples_per_second", "undisturbed_examples_per_second", "cpu_micros_per_example")


@dataclass(frozen=True)
class Measurement:
    """Measurements of one training, from the end of the warm-up to the last measured step."""

    strategy: str
    round: int  # from 1
    constant_input: bool  # whether it trained on one batch in memory
    cores: int  # logical CPUs that its tasks ran on
    steps: int  # global steps; with `parameter_server` each is one worker's
    examples: float  # trained with, by all tasks
    wall: float  # seconds, of the chief
    cpu: float  # CPU seconds of all tasks, scaled to the chief's number of steps
    peak_rss: int  # sum of the tasks' peak resident memories in bytes, shared memory counted for each
    pss: int  # sum of the tasks' memories at the end in bytes, shared memory counted once
    others: float  # share of those cores' time that other processes took
    tasks: list[dict[str, Any]]  # measurements of each task
    gpus: int = 0  # declared GPUs

    @property
    def examples_per_step(self) -> float:
        """Examples in one global step of all tasks."""
        return self.examples / self.steps

    @property
    def examples_per_second(self) -> float:
        """Examples per second of all tasks."""
        return self.examples / self.wall

    @property
    def undisturbed_examples_per_second(self) -> float:
        """Estimated rate without other processes on the cores, for ratios of two runs."""
        return self.examples_per_second / max(1 - self.others, _LEAST_LEFT)

    @property
    def cpu_micros_per_example(self) -> float:
        """CPU microseconds, user and system, of all tasks, parameter servers included."""
        return 1e6 * self.cpu / self.examples

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields and derived values for JSON."""
        return {**asdict(self), **{name: getattr(self, name) for name in _DERIVED}}


def measure(
    run: Run, plan: Plan, inputs: TrainerInputs, declaration: Declaration, folder: str
) -> Optional[Measurement]:
    """Trains in a folder, which keeps the tasks' logs, and measures.

    Returns:
        None for a run on a constant batch if the user's input_fn does not return a data set.
    """
    declared = run.contender.declare(declaration)
    train = declared.trainer.distribution.train
    expected = train.worker_count + train.ps_count
    # A variation's value may be a long path, so the folder's name is cut.
    logs = os.path.join(folder, "logs", f"{re.sub('[/:]', '-', str(run))[:_LONGEST_NAME]}.round-{run.round}")
    cores = run.contender.cores(available_cores())
    os.makedirs(logs, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="training-", dir=folder) as training:
        measured = os.path.join(training, "measured")
        window = Window(measured, plan.warmup, plan.steps, cores, train.worker_count, run.constant_input)
        for name in ("measured", "training"):
            os.mkdir(os.path.join(training, name))
        job = inputs.job(declared, training)
        with _measuring(cores, window, run.contender.device), _explained(run, logs):
            supervise(job, logs, enough=lambda: len(TaskMeasurement.load_all(window.folder)) == expected)
        tasks = TaskMeasurement.load_all(window.folder)
    if len(tasks) != expected:
        raise UserCodeError(
            f"{run}: training ended before {plan.steps:,} steps after {plan.warmup:,} warm-up steps could be measured",
            expected="a trainer_fn that trains to fn_args.train_steps, on data that do not end earlier",
            todo=f"name trainer.model, or a module file with trainer_fn; the logs are in {logs}",
        )
    if run.constant_input and not all(task.constant_input for task in tasks if task.steps):
        return None
    return summed(run, len(cores), tasks)


def summed(run: Run, cores: int, tasks: Sequence[TaskMeasurement]) -> Measurement:
    """Sums up the measurements of tasks on a number of logical CPUs; one of the tasks is `chief-0`."""
    chief = next(task for task in tasks if task.task == "chief-0")
    cpu = sum(task.cpu * chief.steps / (task.steps or chief.steps) for task in tasks)
    return Measurement(
        strategy=str(run.contender),
        round=run.round,
        constant_input=run.constant_input,
        cores=cores,
        gpus=run.contender.count if run.contender.device == GPU else 0,
        steps=chief.steps,
        examples=chief.steps * _examples_per_step(run, tasks),
        wall=chief.wall,
        cpu=cpu,
        peak_rss=sum(task.peak_rss for task in tasks),
        pss=sum(task.pss for task in tasks),
        # The kernel counts a core's time in ticks, so the difference may be negative over a short window.
        others=max(chief.busy - cpu, 0.0) / (chief.wall * cores),
        tasks=[asdict(task) for task in tasks],
    )


def _examples_per_step(run: Run, tasks: Sequence[TaskMeasurement]) -> float:
    """Returns the counted examples of a step; a module file may use another batch size than declared."""
    trainers = [task for task in tasks if task.steps]
    found = [task.examples for task in trainers if task.examples is not None]
    if len(found) < len(trainers):
        raise UserCodeError(
            f"{run}: the features and labels of a step differ in their first dimension, or are not tensors: the number"
            " of examples is unknown",
            expected="features and labels whose first dimension is the batch",
            todo="move features that are not per example to the Estimator's params",
        )
    mean = sum(found) / sum(task.own_steps for task in trainers)
    # A step of parameter servers is one worker's; any other is all workers'.
    return mean if len(trainers) < len(tasks) else mean * len(trainers)


@contextlib.contextmanager
def _measuring(cores: Sequence[int], window: Window, device: str) -> Iterator[None]:
    """Sets the cores and environment variables that the tasks inherit, which exclude other devices and clusters."""
    affinity = os.sched_getaffinity(0)
    # Without a TF_CONFIG the tasks would join a SLURM job; `{}` means a single process.
    own = {MEASURE: window.to_environment(), "TF_CONFIG": "{}", **({VISIBLE_GPUS: "-1"} if device == CPU else {})}
    before = {name: os.environ[name] for name in own if name in os.environ}
    os.environ.update(own)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, affinity)
        for name in own:
            del os.environ[name]
        os.environ.update(before)


@contextlib.contextmanager
def _explained(run: Run, logs: str) -> Iterator[None]:
    """Adds the strategy to error messages."""
    try:
        yield
    except StoppedError as error:
        error.what, error.todo = f"the comparison was ended while {run} was trained", "run the same again"
        raise
    except TfxEstimatorError as error:
        error.what = f"{run}: {error.what}"
        # The supervisor's advice that a later run resumes from the last checkpoint holds for no measurement.
        own = error.todo.removesuffix(f"; {RESUMES}")
        error.todo = f"{f'{own}; or ' if own else ''}see the logs in {logs}; or leave {run.contender} out"
        raise
