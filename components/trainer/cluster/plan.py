"""Which tasks train, where each listens, and what each may use of this machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Optional

from tfx_estimator.components.trainer.cluster.gpus import allotted_gpus
from tfx_estimator.components.trainer.cluster.ports import free_ports
from tfx_estimator.components.trainer.cluster.private_network import NoPrivateNetworkError, PrivateNetwork
from tfx_estimator.components.trainer.cluster.tf_config import Cluster, TfConfig, tf_configs
from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.protocol.task_spec import (
    CHIEF,
    EVALUATOR,
    PS,
    WORKER,
    TaskSpec,
)
from tfx_estimator.pipeline.base.cpus import available_cpus
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.config.distribution import MAX_TASKS, Devices, Distribution
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.runtime import count_gpus

_Gpus = Optional[tuple[int, ...]]

logger = get_logger("trainer")

_OPEN = (
    "the ports of the training cluster are open, without authentication, to all who reach this machine: TensorFlow "
    "listens on every address; because "
)


def alone(kind: str) -> Callable[[int], list[TaskSpec]]:
    """Makes the one task of an attempt that has no others beside it."""
    return lambda attempt: [TaskSpec(kind, 0, attempt)]


def local_cluster(distribution: Distribution, attempt: int) -> list[TaskSpec]:
    """The tasks of a cluster on this machine, on fresh ports."""
    train = distribution.train
    counts = {CHIEF: 1, WORKER: train.worker_count - 1, PS: train.ps_count}
    ports = iter(free_ports(sum(counts.values())))
    cluster = Cluster({kind: tuple(f"localhost:{next(ports)}" for _ in range(n)) for kind, n in counts.items() if n})
    shares = _shares(train.worker_count)
    gpus, of_evaluator = _local_gpus(distribution)
    specs = []
    for task, text in tf_configs(cluster, evaluator=distribution.evaluator).items():
        position = task.index + (task.type == WORKER)
        trains = task.type in (CHIEF, WORKER)
        specs.append(
            TaskSpec(
                task.type,
                task.index,
                attempt,
                tf_config=text,
                cpus=shares[position][0] if trains else (),
                # A task beside those that train has one thread, so that it does not fight with them.
                threads=shares[position][1] if trains else 1,
                gpus=gpus[position] if trains else of_evaluator if task.type == EVALUATOR else (),
                local=True,
            )
        )
    return specs


def resolve_distribution(distribution: Distribution, place: Optional[TfConfig]) -> Distribution:
    """Counts the tasks that train: of somebody else's cluster, else those that are declared, or the default."""
    if place is None:
        return distribution.resolved()
    train = distribution.train
    there = {kind: len(place.cluster.addresses.get(kind, ())) for kind in (CHIEF, WORKER, PS)}
    workers = there[CHIEF] + there[WORKER]
    wrong = []
    if not train.is_cluster:
        wrong.append(f"trainer.distribution.train.strategy is {train.strategy}")
    elif bool(there[PS]) != train.takes("ps"):
        wrong.append(f"the strategy is {train.strategy}, and the cluster has {there[PS]} parameter servers")
    if train.workers and train.workers != workers:
        wrong.append(f"workers is {train.workers}, and the cluster trains with {workers}")
    if max(there.values()) > MAX_TASKS:
        wrong.append(f"at most {MAX_TASKS} tasks of a kind can be declared, and the cluster has {max(there.values())}")
    if train.ps and train.ps != there[PS]:
        wrong.append(f"ps is {train.ps}, and the cluster has {there[PS]}")
    if place.task.type == EVALUATOR and not distribution.evaluator:
        wrong.append("evaluator is false, and this task is one")
    if wrong:
        raise DeclarationError(
            f"TF_CONFIG describes another cluster than trainer.distribution: {'; '.join(wrong)}",
            expected="the same cluster in both",
            todo="correct trainer.distribution, leave workers and ps out, or unset TF_CONFIG to start a cluster here",
        )
    return distribution.resolved(workers, there[PS])


def own_place(place: TfConfig, distribution: Distribution, attempt: int) -> list[TaskSpec]:
    """This process's task in a cluster that somebody else started, and that TF_CONFIG describes."""
    devices = resolve_distribution(distribution, place).train.devices
    gpus: dict[str, _Gpus] = {CHIEF: _declared_gpus(devices), WORKER: _declared_gpus(devices), PS: ()}
    task = place.task
    return [TaskSpec(task.type, task.index, attempt, tf_config=place.to_json(), gpus=gpus.get(task.type))]


def _local_gpus(distribution: Distribution) -> tuple[list[_Gpus], _Gpus]:
    """Each process that trains, and the evaluator, gets GPUs of its own: a process takes all memory of those it sees.

    Returns:
        The GPUs of each process that trains; those of the evaluator.
    """
    train, evaluate, workers = distribution.train, distribution.eval, distribution.train.worker_count
    for which, section, several in (("train", train, workers > 1), ("eval", evaluate, distribution.evaluator)):
        if several and isinstance(section.devices.gpu, tuple):
            raise DeclarationError(
                f"trainer.distribution.{which}.devices.gpu lists the GPUs of one process, and several share this "
                "machine",
                expected=f"how many GPUs each process gets, gpu: {section.devices.count}",
                todo="write the number; CUDA_VISIBLE_DEVICES says which GPUs there are to share out",
            )
    own = evaluate.devices.count if distribution.evaluator and evaluate.devices.gpu else 0
    trainers: list[_Gpus]
    declared, there = _declared_gpus(train.devices), gpu_count()
    if declared is not None:
        trainers = [tuple(position * len(declared) + index for index in declared) for position in range(workers)]
    elif there:
        # 0 if the evaluator leaves too few.
        each = max((there - own) // workers, 0)
        if not each:
            logger.warning(
                f"{there} GPUs are too few for {workers} processes that train: they train on CPU; lower "
                "trainer.distribution.train.workers, or train with the strategy mirrored"
            )
        trainers = [tuple(range(position * each, (position + 1) * each)) for position in range(workers)]
    else:
        trainers = [None] * workers
    if own:
        first = 1 + max((index for share in trainers for index in share or ()), default=-1)
        return trainers, tuple(range(first, first + own))
    # The evaluator may use all GPUs if training was declared to be on CPU.
    shared = train.devices.gpu or (there and not train.devices.cpu)
    return trainers, () if shared or evaluate.devices.cpu else None


def _declared_gpus(devices: Devices) -> _Gpus:
    """What the first process sees; None if no devices are declared."""
    return () if devices.cpu else devices.indices or None


def gpu_count() -> int:
    """GPUs that there are to share out, without a library that would set them up."""
    allotted = allotted_gpus(os.environ)
    return count_gpus() if allotted is None else len(allotted)


def _shares(tasks: int) -> list[tuple[tuple[int, ...], Optional[int]]]:
    """Shares cores out evenly; nobody gets cores of his own if there are fewer than tasks.

    Nor where a container may use the time of a few among many: on which cores is for the kernel to say, whose other
    containers are there as well.

    Returns:
        For each task its cores, none for all; and its threads, None for TensorFlow's own choice.
    """
    cores = sorted(os.sched_getaffinity(0))
    each = (available := available_cpus()) // tasks
    if not each or tasks == 1:
        return [((), 1)] * tasks
    if available < len(cores):
        return [((), each)] * tasks
    return [(tuple(cores[index * each : (index + 1) * each]), None) for index in range(tasks)]


@contextlib.contextmanager
def cluster_network(job: Job, distribution: Distribution) -> Iterator[tuple[int, ...]]:
    """Makes the network that the tasks of a cluster share."""
    # A run looks here for its cluster before it says anything, and TFX brings TensorFlow.
    from tfx.types import artifact_utils

    if distribution.network == "host":
        yield ()
        return
    inputs = artifact_utils.parse_artifact_dict(job.inputs).values()
    uris = [job.training_dir, *(artifact.uri for channel in inputs for artifact in channel)]
    remote = any(map(is_address, uris))
    with contextlib.ExitStack() as stack:
        fds: tuple[int, ...] = ()
        if remote:
            logger.warning(f"{_OPEN}data or results lie on another machine")
        else:
            try:
                fds = stack.enter_context(PrivateNetwork()).fds
            except NoPrivateNetworkError as error:
                logger.warning(f"{_OPEN}{error}")
        yield fds
