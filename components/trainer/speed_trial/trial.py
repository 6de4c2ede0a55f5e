"""The task that tries the ways to compute a step: for some seconds, in turns, on one batch of the training."""

from __future__ import annotations

import dataclasses
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Optional

import tensorflow as tf

from tfx_estimator.components.trainer import seeds
from tfx_estimator.components.trainer.declared_input import declared_input
from tfx_estimator.components.trainer.protocol.events import Event
from tfx_estimator.components.trainer.speed_trial import candidates, verdict
from tfx_estimator.components.trainer.speed_trial.candidates import Candidate
from tfx_estimator.components.trainer.speed_trial.verdict import Slice, Verdict, Way
from tfx_estimator.components.trainer.task.context import TaskContext
from tfx_estimator.components.trainer.task.fn_args import make_fn_args
from tfx_estimator.data.sharding import ELEMENT
from tfx_estimator.model_fn.compiling import tried_for
from tfx_estimator.model_fn.strategies import configure_devices
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.parts import AUTO
from tfx_estimator.pipeline.config.section import MAX_STEPS
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.errors import TfxEstimatorError

_ROUNDS, _SLICE_SECONDS, _MOST_STEPS, _MOST_SECONDS = 7, 0.25, 500, 30.0
# After so many seconds no further way is made ready: a large network may take minutes to build and to compile.
_MOST_READYING_SECONDS = 60.0
# Steps that are not timed: the first ones make the graph, compile it and allocate.
_WARM_UP = (1, 2)
# Steps that are timed one by one, for a first impression.
_ONCE = 3
# A way whose step takes so many times as long needs no further ones.
_HOPELESS = 3.0
# Letters of a reason: a line's worth.
_REASON = 200
# What was tried, to the end of the process: see `task.start`.
_KEPT: list[Candidate] = []


def run(context: TaskContext) -> None:
    """Tries what is declared as `auto`, and leaves a verdict in the training folder.

    Args:
        context: Of the task.

    Raises:
        UserCodeError: The code does not keep its contract. Where another way than the plain one fails, it is left out.
    """
    context.progress.write(Event.STARTED)
    declared = context.settings.trainer
    assert declared is not None
    section = of_one_process(declared)
    seeds.apply(section)
    configure_devices(section.distribution.train, cpus=section.logical_cpus)
    reads = declared_input(make_fn_args(context.job), section, lambda: 0)
    reads.require()
    reader = dataclasses.replace(reads.reader, sharding=ELEMENT, augment=())
    # Arrays: an Estimator takes them into a graph of its own.
    batch = next(reader.input_fn(ModeKeys.TRAIN).as_numpy_iterator())
    began = time.monotonic()
    # One process of a cluster may have one replica, where training has several.
    with tempfile.TemporaryDirectory() as folder, tried_for(declared.distribution.train.replicas):
        left_out: dict[Way, str] = {}
        made: dict[Way, Candidate] = {}
        once: dict[Way, float] = {}
        by_cpu = not tf.config.list_logical_devices("GPU")
        for way in (ways := verdict.ways_of(declared)):
            reason = verdict.why_hopeless(way, ways[0], once) if by_cpu else ""
            if reason := reason or verdict.why_late(way, ways[0], time.monotonic() - began, _MOST_READYING_SECONDS):
                left_out[way] = reason
                continue
            context.progress.write(Event.TRYING, text=str(way))
            own = dataclasses.replace(context.job, training_dir=os.path.join(folder, str(way)))
            of_way = section.copy(update={"precision": way.precision, "xla": way.xla})
            try:
                made[way] = candidates.make(
                    dataclasses.replace(context, job=own), of_way, reads.transformed_spec, batch
                )
                for steps in _WARM_UP:
                    made[way].run(steps)
                once[way] = min(_slice(made[way], 1, section.global_batch_size).wall for _ in range(_ONCE))
            except Exception as error:
                if way == ways[0]:
                    raise
                _KEPT.extend(filter(None, [made.pop(way, None)]))
                left_out[way] = _said(error)
        found = _measure(made, once, left_out, section.global_batch_size, declared.undecided, by_cpu)
        # First: whatever hangs in what follows, it is known.
        verdict.write(context.job.training_dir, found)
        for each in made.values():
            each.close()
        _KEPT.extend(made.values())


def of_one_process(section: TrainerSection) -> TrainerSection:
    """Returns what one of the processes that train computes by itself: with its part of the batch, and its devices.

    Args:
        section: The declared trainer.
    """
    train = section.distribution.train
    changed: dict[str, object] = {"strategy": train.strategy, "devices": train.devices.dict(exclude_none=True)}
    batch = section.global_batch_size
    if train.is_collective:
        # The strategy of one machine that computes as its workers do.
        changed["strategy"] = "mirrored"
        batch //= train.worker_count
    elif train.is_cluster:
        changed["strategy"] = "one_device"
    if not changed["devices"]:
        del changed["devices"]
    # Whose batches `auto` leaves whole, unlike those of the strategy that stands in for it.
    whole = {"parallel_parts": 1} if train.asynchronous and section.parallel_parts == AUTO else {}
    return section.copy(
        update={
            **whole,
            "distribution": Distribution.parse_obj({"train": changed}),
            "global_batch_size": batch,
            # Nothing but steps.
            **dict.fromkeys(("sync_every", "keep_best", "early_stopping", "profile", "warm_start")),
            **dict.fromkeys(("save_checkpoints_steps", "log_every_steps"), MAX_STEPS),
        }
    )


def _measure(
    made: dict[Way, Candidate],
    once: dict[Way, float],
    left_out: dict[Way, str],
    batch: int,
    undecided: Sequence[str],
    by_cpu: bool,
) -> Verdict:
    """Has each way train for a moment, in turns."""
    began = time.monotonic()
    plain = next(iter(made))
    for way, seconds in once.items():
        if seconds > max(_HOPELESS * once[plain], _SLICE_SECONDS):
            left_out[way] = f"a step takes {seconds / once[plain]:.1f} times as long"
    steps = {way: min(max(int(_SLICE_SECONDS / seconds), 1), _MOST_STEPS) for way, seconds in once.items()}
    slices: dict[Way, list[Slice]] = {way: [] for way in once if way not in left_out}
    for number in range(_ROUNDS):
        if number and time.monotonic() - began > _MOST_SECONDS:
            break
        for way in list(slices) if number % 2 else list(reversed(slices)):
            if taken := _tried(way, made[way], steps[way], batch, plain, left_out):
                slices[way].append(taken)
            else:
                del slices[way]
    return verdict.decide(_of_use(slices), left_out, undecided, by_cpu)


def _tried(
    way: Way, candidate: Candidate, steps: int, batch: int, plain: Way, left_out: dict[Way, str]
) -> Optional[Slice]:
    """Has a way train; None if it fails, and so is left out. What the plain one fails by, training will too."""
    try:
        return _slice(candidate, steps, batch)
    except Exception as error:
        if way == plain:
            raise
        left_out[way] = _said(error)
        return None


def _of_use(slices: Mapping[Way, list[Slice]]) -> Mapping[Way, list[Slice]]:
    """Without the first round, where there are others."""
    return {way: taken[1:] or taken for way, taken in slices.items()}


def _slice(candidate: Candidate, steps: int, batch: int) -> Slice:
    cpu, wall = time.process_time(), time.monotonic()
    candidate.run(steps)
    return Slice(steps * batch, time.process_time() - cpu, time.monotonic() - wall)


def _said(error: Exception) -> str:
    """The line of an error that says what happened."""
    if isinstance(error, TfxEstimatorError):
        return error.what[:_REASON]
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [
        line for line in lines if not line.startswith(('File "', "Detected at", "Graph execution error", "in user"))
    ]
    return f"{type(error).__name__}: {(told or [''])[0]}"[:_REASON]
