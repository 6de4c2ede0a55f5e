"""The tasks of a cluster, with their ports, and their shares of this machine's cores and GPUs."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import socket
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Optional

from tfx_estimator.components.trainer.cluster.private_network import NoPrivateNetworkError, PrivateNetwork
from tfx_estimator.components.trainer.cluster.tf_config import Cluster, TfConfig, tf_configs
from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, EVALUATOR, PS, WORKER, TaskSpec
from tfx_estimator.pipeline.base.cpus import available_cpus
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.config.distribution import Devices, Distribution
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.runtime import count_gpus

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
_GPU = re.compile(r"\d+|(GPU|MIG)-\S+", re.ASCII)
# More ports than a cluster with all its restarts takes before a started task binds its port.
_recent_ports: deque[int] = deque(maxlen=1024)
_Gpus = Optional[tuple[int, ...]]

_OPEN = (
    "the ports of the training cluster are open, without authentication, to all who reach this machine: TensorFlow "
    "listens on every address; because "
)

logger = get_logger("trainer")


def alone(kind: str) -> Callable[[int], list[TaskSpec]]:
    """Returns a function that makes the only task of an attempt."""
    return lambda attempt: [TaskSpec(kind, 0, attempt)]


def local_cluster(distribution: Distribution, attempt: int) -> list[TaskSpec]:
    """Returns the tasks of a cluster on this machine, on fresh ports."""
    train = distribution.train
    counts = {CHIEF: 1, WORKER: train.worker_count - 1, PS: train.ps_count}
    ports = iter(free_ports(sum(counts.values())))
    cluster = Cluster({kind: tuple(f"localhost:{next(ports)}" for _ in range(n)) for kind, n in counts.items() if n})
    shares = _shares(train.worker_count)
    gpus, evaluator_gpus = _local_gpus(distribution)
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
                # A task that does not train has one thread, so as not to compete with those that do.
                threads=shares[position][1] if trains else 1,
                gpus=gpus[position] if trains else evaluator_gpus if task.type == EVALUATOR else (),
                local=True,
            )
        )
    return specs


def resolve_distribution(distribution: Distribution, place: Optional[TfConfig]) -> Distribution:
    """Sets the numbers of workers and parameter servers: an external cluster's, else the declared or default ones."""
    if place is None:
        return distribution.resolved()
    train = distribution.train
    counts = {kind: len(place.cluster.addresses.get(kind, ())) for kind in (CHIEF, WORKER, PS)}
    workers = counts[CHIEF] + counts[WORKER]
    wrong = []
    if not train.is_cluster:
        wrong.append(f"trainer.distribution.train.strategy is {train.strategy}")
    elif bool(counts[PS]) != train.takes("ps"):
        wrong.append(f"the strategy is {train.strategy}, and the cluster has {counts[PS]} parameter servers")
    if train.workers and train.workers != workers:
        wrong.append(f"workers is {train.workers}, and the cluster trains with {workers}")
    if train.ps and train.ps != counts[PS]:
        wrong.append(f"ps is {train.ps}, and the cluster has {counts[PS]}")
    if place.task.type == EVALUATOR and not distribution.evaluator:
        wrong.append("evaluator is false, and this task is one")
    if wrong:
        raise DeclarationError(
            f"TF_CONFIG describes another cluster than trainer.distribution: {'; '.join(wrong)}",
            expected="the same cluster in both",
            todo="correct trainer.distribution, leave workers and ps out, or unset TF_CONFIG to start a cluster here",
        )
    return distribution.resolved(workers, counts[PS])


def own_place(place: TfConfig, distribution: Distribution, attempt: int) -> list[TaskSpec]:
    """Returns this process's task in the external cluster of TF_CONFIG."""
    devices = resolve_distribution(distribution, place).train.devices
    gpus: dict[str, _Gpus] = {CHIEF: _declared_gpus(devices), WORKER: _declared_gpus(devices), PS: ()}
    task = place.task
    return [TaskSpec(task.type, task.index, attempt, tf_config=place.to_json(), gpus=gpus.get(task.type))]


def _local_gpus(distribution: Distribution) -> tuple[list[_Gpus], _Gpus]:
    """Returns the GPUs of each process that trains, and of the evaluator.

    No two processes share a GPU, since TensorFlow takes all memory of the GPUs that it sees.
    """
    train, evaluate, workers = distribution.train, distribution.eval, distribution.train.worker_count
    for which, section, several in (("train", train, workers > 1), ("eval", evaluate, distribution.evaluator)):
        if several and isinstance(section.devices.gpu, tuple):
            raise DeclarationError(
                f"trainer.distribution.{which}.devices.gpu lists the GPUs of one process, and several share this "
                "machine",
                expected=f"the number of GPUs for each process, gpu: {section.devices.count}",
                todo="write the number; CUDA_VISIBLE_DEVICES chooses the GPUs to share out",
            )
    own = evaluate.devices.count if distribution.evaluator and evaluate.devices.gpu else 0
    trainers: list[_Gpus]
    declared, total = _declared_gpus(train.devices), gpu_count()
    if declared is not None:
        trainers = [tuple(position * len(declared) + index for index in declared) for position in range(workers)]
    elif total:
        # 0 if the evaluator leaves too few.
        each = max((total - own) // workers, 0)
        if not each:
            logger.warning(
                f"{total} GPUs are too few for {workers} processes that train: they train on CPU; lower "
                "trainer.distribution.train.workers, or train with the strategy mirrored"
            )
        trainers = [tuple(range(position * each, (position + 1) * each)) for position in range(workers)]
    else:
        trainers = [None] * workers
    if own:
        first = 1 + max((index for share in trainers for index in share or ()), default=-1)
        return trainers, tuple(range(first, first + own))
    # The evaluator may use all GPUs if training was declared to be on CPU.
    shared = train.devices.gpu or (total and not train.devices.cpu)
    return trainers, () if shared or evaluate.devices.cpu else None


def _declared_gpus(devices: Devices) -> _Gpus:
    """Returns the GPUs of the first process; None if no devices are declared."""
    return () if devices.cpu else devices.indices or None


def gpu_count() -> int:
    """Returns the number of visible GPUs, without a library that would initialise them."""
    allotted = allotted_gpus(os.environ)
    return count_gpus() if allotted is None else len(allotted)


def _shares(tasks: int) -> list[tuple[tuple[int, ...], Optional[int]]]:
    """Divides the cores evenly among tasks.

    No task is pinned if there are fewer cores than tasks, or under a CPU quota: there the kernel chooses the cores,
    which other containers use as well.

    Returns:
        For each task its cores, empty for all, and its number of threads, None for TensorFlow's default.
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
    """Makes the private network of a local cluster's tasks, where possible; yields its file descriptors."""
    # Imported late: a run uses this module before its first output, and TFX imports TensorFlow.
    from tfx.types import artifact_utils

    if distribution.network == "host":
        yield ()
        return
    inputs = artifact_utils.parse_artifact_dict(job.inputs).values()
    uris = [job.training_dir, *(artifact.uri for channel in inputs for artifact in channel)]
    fds: tuple[int, ...] = ()
    with contextlib.ExitStack() as stack:
        try:
            if any(map(is_address, uris)):
                raise NoPrivateNetworkError("data or results lie on another machine")
            fds = stack.enter_context(PrivateNetwork()).fds
        except NoPrivateNetworkError as error:
            logger.warning(f"{_OPEN}{error}")
        yield fds


def free_ports(count: int) -> list[int]:
    """Finds free ports, without those that were returned recently.

    TensorFlow's server listens on all interfaces, whatever its address, so a port must be free on all of them. Another
    process may take a port before the task starts: the task then ends at once, and the supervisor restarts the cluster
    on fresh ports.
    """
    ports: list[int] = []
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    with contextlib.ExitStack() as held:
        while len(ports) < count:
            # All ports are held until the end, so that the kernel assigns a different one each time.
            server = socket.create_server(("", 0), family=family, dualstack_ipv6=dual)
            port = held.enter_context(server).getsockname()[1]
            if port not in _recent_ports:
                ports.append(port)
                _recent_ports.append(port)
    return ports


def allotted_gpus(environment: Mapping[str, str]) -> Optional[tuple[str, ...]]:
    """Returns the indices or UUIDs in CUDA_VISIBLE_DEVICES; None if it is not set, for all GPUs.

    Like CUDA, it stops at the first invalid entry, such as -1.
    """
    text = environment.get(VISIBLE_GPUS)
    if text is None:
        return None
    return tuple(itertools.takewhile(_GPU.fullmatch, map(str.strip, text.split(","))))


def visible_gpus(gpus: Sequence[int], environment: Mapping[str, str]) -> str:
    """Returns a task's CUDA_VISIBLE_DEVICES: a selection of those in its environment."""
    allotted = allotted_gpus(environment)
    if allotted is None:
        return ",".join(map(str, gpus))
    return ",".join(allotted[index] for index in gpus if index < len(allotted))
