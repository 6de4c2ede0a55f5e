"""Two processes of one core each against one: the measurements themselves are those of `bench strategies`."""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import dataclass, field
from typing import Any, Optional

from tests.bench.measure import Worker, run_worker

# Seconds of each on a machine of today.
_EXAMPLES, _WARMUP = 38_400, 6_400
# As the preset.
_BATCH, _PARTS = 128, 4


@dataclass(frozen=True)
class Side:
    """One of what is compared.

    Args:
        strategy: Of `bench strategies`.
        alone: How many such trainings there are at once, each on a core of its own.
        trainer: Entries of `trainer`.
    """

    strategy: str = "one_core"
    count: int = 1
    alone: int = 1
    trainer: dict[str, Any] = field(default_factory=lambda: {"global_batch_size": _BATCH})


SIDES = {
    "one": Side(),
    "independent": Side(alone=2),
    "two": Side("multi_worker_mirrored", 2),
    # As TensorFlow's guide scales: the batch of a replica stays, the global one grows with their number.
    "scaled": Side("multi_worker_mirrored", 2, trainer={"global_batch_size": 2 * _BATCH}),
    "accumulated": Side(
        "multi_worker_mirrored", 2, trainer={"global_batch_size": _PARTS * _BATCH, "gradient_accumulation": _PARTS}
    ),
    "averaged": Side(
        "multi_worker_mirrored",
        2,
        # Refused with one device, though it is the side that decides.
        trainer={
            "global_batch_size": _BATCH,
            "sync_every": _PARTS,
            "distribution.train": "{strategy: multi_worker_mirrored, workers: 2}",
        },
    ),
}


def measure_side(side: Side, inputs: dict[str, Any], data_dir: Optional[str]) -> dict[str, Any]:
    """Trains `cifar_cnn` on the path `keras`.

    Args:
        inputs: What `prepare` returned.

    Returns:
        CPU seconds, wall seconds and examples; examples/s; and the same as if other processes had taken nothing.
    """
    options: dict[str, Any] = {
        "strategy": side.strategy,
        "count": side.count,
        "trainer": side.trainer,
        "inputs": inputs,
        "data_dir": data_dir,
    }
    if side.alone == 1:
        return run_worker("train_cluster", core=None, **options)
    cores = sorted(os.sched_getaffinity(0))[: side.alone]
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker("train_cluster", core=core, **options)) for core in cores]
        found = [worker.hear() for worker in workers]
        for worker in workers:
            worker.wait()
    summed = ("cpu", "examples", "rate", "undisturbed")
    return {"wall": max(each["wall"] for each in found), **{key: sum(each[key] for each in found) for key in summed}}


def prepare(folder: str, data_dir: Optional[str]) -> dict[str, Any]:
    """Runs the preset's pipeline up to the Trainer; what is there already comes from TFX's cache."""
    from tfx_estimator.pipeline.experiments.training import prepare_inputs
    from tfx_estimator.pipeline.folders import PipelineFolders

    loaded = _load(data_dir, {"global_batch_size": _BATCH})
    folders = PipelineFolders(folder, loaded.declaration.name)
    os.makedirs(folders.home, exist_ok=True)
    inputs = prepare_inputs(loaded, folders)
    return {"artifacts": inputs.artifacts, "exec_properties": inputs.exec_properties}


def train(
    strategy: str,
    count: int,
    trainer: dict[str, Any],
    inputs: dict[str, Any],
    data_dir: Optional[str],
    core: Optional[int],
) -> dict[str, Any]:
    """Trains once: see `measure_side`.

    Args:
        inputs: What `prepare` returned.
        core: The only one; None is as `bench strategies` chooses.

    Returns:
        As `measure_side`.
    """
    from tfx_estimator.pipeline.experiments.bench.measure import measure
    from tfx_estimator.pipeline.experiments.bench.strategies import Contender, Plan, Run
    from tfx_estimator.pipeline.experiments.training import TrainerInputs

    if core is not None:
        os.sched_setaffinity(0, {core})
    declaration = _load(data_dir, trainer).declaration
    batch = declaration.trainer.global_batch_size
    contender = Contender(strategy, count)
    plan = Plan((contender,), _EXAMPLES // batch, _WARMUP // batch, 1, input_share=False)
    with tempfile.TemporaryDirectory(prefix="tfx-estimator-bench-") as folder:
        found = measure(Run(contender, 1), plan, TrainerInputs(**inputs), declaration, folder)
    assert found is not None
    return {
        "cpu": found.cpu,
        "wall": found.wall,
        "examples": found.examples,
        "rate": found.examples_per_second,
        "undisturbed": found.undisturbed_examples_per_second,
    }


def _load(data_dir: Optional[str], trainer: dict[str, Any]) -> Any:
    from tfx_estimator.pipeline.config import load

    values = {"path": "keras", "model": "cifar_cnn", "threads.intra_op": 1, **trainer}
    overrides = [f"trainer.{key}={value}" for key, value in values.items()]
    return load("cifar10", [*overrides, *([f"data.data_dir={data_dir}"] if data_dir else [])])
