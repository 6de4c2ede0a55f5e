"""Which tasks train, where each listens, and what each may use of this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Optional

from components.trainer.cluster.orders import CHIEF, EVALUATOR, EXPORTER, PROBE, PS, WORKER, Orders
from components.trainer.cluster.ports import free_ports
from components.trainer.cluster.tf_config import Cluster, TfConfig, tf_configs
from pipeline.config.distribution import Distribution
from pipeline.errors import DeclarationError


def single_task(attempt: int) -> list[Orders]:
    """The one task of a training without a cluster."""
    return [Orders(CHIEF, 0, attempt)]


def exporter_task(attempt: int) -> list[Orders]:
    """The task that evaluates and exports after a cluster without an evaluator: none of its tasks does."""
    return [Orders(EXPORTER, 0, attempt)]


def probe_task(attempt: int) -> list[Orders]:
    """The task that tries the user's loss under several replicas."""
    return [Orders(PROBE, 0, attempt)]


def local_cluster(distribution: Distribution, attempt: int) -> list[Orders]:
    """The tasks of a cluster on this machine, on fresh ports.

    Args:
        distribution: What was declared.
        attempt: From 1.

    Returns:
        Chief, workers, parameter servers and, where declared, the evaluator.
    """
    train = distribution.train
    counts = {CHIEF: 1, WORKER: train.worker_count - 1, PS: train.ps_count}
    ports = iter(free_ports(sum(counts.values())))
    cluster = Cluster({kind: tuple(f"localhost:{next(ports)}" for _ in range(n)) for kind, n in counts.items() if n})
    shares = _shares(sorted(os.sched_getaffinity(0)), train.worker_count)
    orders = []
    for task, text in tf_configs(cluster, evaluator=distribution.evaluator).items():
        position = task.index + (task.type == WORKER)
        trains = task.type in (CHIEF, WORKER)
        gpus: tuple[int, ...] = ()
        if trains and (count := train.devices.gpu):
            gpus = tuple(range(position * count, (position + 1) * count))
        orders.append(
            Orders(
                task.type,
                task.index,
                attempt,
                tf_config=text,
                cpus=shares[position] if trains else (),
                # More tasks than cores, or a task beside those that train: one thread, so that they do not fight.
                threads=None if trains and shares[position] else 1,
                gpus=gpus,
            )
        )
    return orders


def own_place(config: TfConfig, distribution: Distribution, attempt: int) -> list[Orders]:
    """This process's task in a cluster that somebody else started, and that TF_CONFIG describes.

    Args:
        config: The cluster, and this task of it.
        distribution: What was declared.
        attempt: From 1.

    Returns:
        The one task.

    Raises:
        DeclarationError: The cluster is not the declared one.
    """
    train = distribution.train
    there = {kind: len(config.cluster.addresses.get(kind, ())) for kind in (CHIEF, WORKER, PS)}
    wrong = []
    if not train.is_cluster:
        wrong.append(f"trainer.distribution.train.strategy is {train.strategy}")
    elif (PS in config.cluster.addresses) != (train.strategy == "parameter_server"):
        wrong.append(f"the strategy is {train.strategy}, and the cluster has {there[PS]} parameter servers")
    if train.workers and train.workers != there[CHIEF] + there[WORKER]:
        wrong.append(f"workers is {train.workers}, and the cluster trains with {there[CHIEF] + there[WORKER]}")
    if train.ps and train.ps != there[PS]:
        wrong.append(f"ps is {train.ps}, and the cluster has {there[PS]}")
    if config.task.type == EVALUATOR and not distribution.evaluator:
        wrong.append("evaluator is false, and this task is one")
    if wrong:
        raise DeclarationError(
            f"TF_CONFIG describes another cluster than trainer.distribution: {'; '.join(wrong)}",
            expected="the same cluster in both",
            todo="correct trainer.distribution, leave workers and ps out, or unset TF_CONFIG to start a cluster here",
        )
    return [Orders(config.task.type, config.task.index, attempt, tf_config=config.to_json())]


def _shares(cores: Sequence[int], tasks: int) -> list[tuple[int, ...]]:
    """Shares cores out evenly; nobody gets cores of his own where there are fewer than tasks."""
    each: Optional[int] = len(cores) // tasks
    if not each or tasks == 1:
        return [()] * tasks
    return [tuple(cores[index * each : (index + 1) * each]) for index in range(tasks)]
