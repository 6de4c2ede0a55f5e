"""Measures one training under one strategy: real task processes under the Trainer's own supervisor."""

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

# Least share of the cores left to the tasks; below it nothing can be estimated.
_LEAST_LEFT = 0.05
_LONGEST_NAME = 150
_DERIVED = ("examples_per_step", "examples_per_second", "undisturbed_examples_per_second", "cpu_micros_per_example")


@dataclass(frozen=True)
class Measurement:
    """What one training came to, between the end of the warm-up and the last step that counts."""

    strategy: str
    round: int  # from 1
    constant_input: bool  # was it on one batch that stays in memory
    cores: int  # logical CPUs that its tasks ran on
    steps: int  # global steps; with `parameter_server` each is one worker's
    examples: float  # trained with, by all tasks
    wall: float  # seconds, of the chief
    cpu: float  # CPU seconds of all tasks; of one that did more steps than the chief, the same share
    peak_rss: int  # sum of the tasks' largest resident memories, in bytes; what they share counts for each
    pss: int  # sum of the tasks' memories at the end, what is shared counted once, in bytes
    others: float  # share of those cores' time that other processes took
    tasks: list[dict[str, Any]]  # what each task measured
    gpus: int = 0  # that it was declared to train on

    @property
    def examples_per_step(self) -> float:
        """Examples of one global step, of all tasks together."""
        return self.examples / self.steps

    @property
    def examples_per_second(self) -> float:
        """Examples a second, of all tasks together."""
        return self.examples / self.wall

    @property
    def undisturbed_examples_per_second(self) -> float:
        """An estimate of the rate without other processes on the cores; for ratios of two runs."""
        return self.examples_per_second / max(1 - self.others, _LEAST_LEFT)

    @property
    def cpu_micros_per_example(self) -> float:
        """CPU microseconds, user and system, of all tasks together, parameter servers included."""
        return 1e6 * self.cpu / self.examples

    def to_dict(self) -> dict[str, Any]:
        """Returns what JSON can hold: its fields, and what follows from them."""
        return {**asdict(self), **{name: getattr(self, name) for name in _DERIVED}}


def measure(
    run: Run, plan: Plan, inputs: TrainerInputs, declaration: Declaration, folder: str
) -> Optional[Measurement]:
    """Trains in a folder, where the tasks' logs stay, and measures.

    Returns:
        None if a constant batch was asked for, and the user's input_fn returns no data set.
    """
    declared = run.contender.declare(declaration)
    train = declared.trainer.distribution.train
    expected = train.worker_count + train.ps_count
    # The value of a variation may be a long path, so the folder's name is cut.
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
            f"{run}: training ended before {plan.steps:,} steps after {plan.warmup:,} to warm up could be measured",
            expected="a trainer_fn that trains to fn_args.train_steps, on data that do not end before",
            todo=f"name trainer.model, or a module file with trainer_fn; the logs are in {logs}",
        )
    if run.constant_input and not all(task.constant_input for task in tasks if task.steps):
        return None
    return summed(run, len(cores), tasks)


def summed(run: Run, cores: int, tasks: Sequence[TaskMeasurement]) -> Measurement:
    """Sums up what the tasks measured on so many logical CPUs; one of the tasks is `chief-0`."""
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
        # The kernel counts a core's time in ticks: over a short window the difference may be below 0.
        others=max(chief.busy - cpu, 0.0) / (chief.wall * cores),
        tasks=[asdict(task) for task in tasks],
    )


def _examples_per_step(run: Run, tasks: Sequence[TaskMeasurement]) -> float:
    """What the models were fed, and not what was declared: a module file need not keep to that."""
    trainers = [task for task in tasks if task.steps]
    found = [task.examples for task in trainers if task.examples is not None]
    if len(found) < len(trainers):
        raise UserCodeError(
            f"{run}: the features and labels of a step differ in their first dimension, or are no tensors: it cannot"
            " be known how many examples it trains with",
            expected="features and labels whose first dimension is the batch",
            todo="move what is of no example from the features to the Estimator's params",
        )
    mean = sum(found) / sum(task.own_steps for task in trainers)
    # A step of parameter servers is one worker's; any other is all workers'.
    return mean if len(trainers) < len(tasks) else mean * len(trainers)


@contextlib.contextmanager
def _measuring(cores: Sequence[int], window: Window, device: str) -> Iterator[None]:
    """Puts the cores and the window where the tasks inherit them; keeps the tasks off other devices and clusters."""
    affinity = os.sched_getaffinity(0)
    # Without a TF_CONFIG the tasks would join SLURM's job where there is one; `{}` means a single process.
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
    """Says which strategy failed."""
    try:
        yield
    except StoppedError as error:
        error.what, error.todo = f"the comparison was ended while {run} was trained", "run the same again"
        raise
    except TfxEstimatorError as error:
        error.what = f"{run}: {error.what}"
        # The supervisor says that a later run goes on from the last checkpoint, which no measurement does.
        own = error.todo.removesuffix(f"; {RESUMES}")
        error.todo = f"{f'{own}; or ' if own else ''}see the logs in {logs}; or leave {run.contender} out"
        raise
