"""TF_CONFIG, the environment variable with a task's cluster and its place in it, in every dialect.

All dialects are normalised to the form that `tf.estimator` of TensorFlow 2.15 requires: an explicit chief, and no
evaluator in the cluster. If TF_CONFIG is not set, SLURM's variables take its place.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from tfx_estimator.pipeline.base.errors import DeclarationError

VARIABLE = "TF_CONFIG"
CHIEF, WORKER, PS, EVALUATOR = "chief", "worker", "ps", "evaluator"

_IN_CLUSTER = (CHIEF, WORKER, PS)
_TYPES = (*_IN_CLUSTER, EVALUATOR)
# TensorFlow 1's name for the chief.
_MASTER = "master"
# The first task on each node of SLURM listens on this port, the second on the next.
_SLURM_PORT = 8888
_EXAMPLE = (
    '{"cluster": {"chief": ["host0:2222"], "worker": ["host1:2222"]}, "task": {"type": "worker", "index": 0}}, '
    "see https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable"
)
_UNSET = "correct the environment variable TF_CONFIG, or unset it to train in a single process"


@dataclass(frozen=True)
class Task:
    """One process of a cluster."""

    type: str
    index: int

    def __post_init__(self) -> None:
        if self.type not in _TYPES:
            raise _wrong(f"there is no task type {reprlib.repr(self.type)}", f"one of {', '.join(_TYPES)}")

    @property
    def name(self) -> str:
        """Type and index, as in `worker-1`."""
        return f"{self.type}-{self.index}"


@dataclass(frozen=True)
class Cluster:
    """The tasks that train together, without an evaluator, which only reads checkpoints.

    Args:
        addresses: Task type to the `host:port` of each task, in the order of their indices: exactly one chief, and any
            number of worker and ps. Types without a task are left out.
    """

    addresses: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.addresses) - set(_IN_CLUSTER)):
            raise _wrong(f"there is no task type `{unknown[0]}` in a cluster", f"only {', '.join(_IN_CLUSTER)}")
        whole = {kind: tuple(self.addresses[kind]) for kind in _IN_CLUSTER if self.addresses.get(kind)}
        if len(whole.get(CHIEF, ())) != 1:
            raise _wrong(f"the cluster has {len(whole.get(CHIEF, ()))} chiefs", "exactly one")
        object.__setattr__(self, "addresses", whole)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The chief, the workers, the parameter servers."""
        return tuple(Task(kind, index) for kind, listed in self.addresses.items() for index in range(len(listed)))


@dataclass(frozen=True)
class TfConfig:
    """A cluster, and this process's task: one of the cluster's, or an evaluator."""

    cluster: Cluster
    task: Task

    def __post_init__(self) -> None:
        if self.task.type != EVALUATOR and self.task not in self.cluster.tasks:
            raise _no_such_task(self.task, self.cluster.addresses)

    def to_json(self) -> str:
        """Writes the form that `tf.estimator` requires, with sorted keys."""
        task = {"type": self.task.type, "index": self.task.index}
        return json.dumps({"cluster": dict(self.cluster.addresses), "task": task}, sort_keys=True)


def tf_configs(cluster: Cluster, evaluator: bool) -> dict[Task, str]:
    """Writes TF_CONFIG for all tasks."""
    tasks = (*cluster.tasks, *([Task(EVALUATOR, 0)] if evaluator else []))
    return {task: TfConfig(cluster, task).to_json() for task in tasks}


def resolve(environment: Mapping[str, str]) -> Optional[TfConfig]:
    """Returns the cluster that this process is part of; None for a single process."""
    if text := environment.get(VARIABLE, "").strip():
        return read(text)
    return from_slurm(environment)


def read(text: str) -> Optional[TfConfig]:
    """Reads a TF_CONFIG in any dialect.

    The chief is `chief` or `master`, or worker 0 if there is neither; the other workers are then renumbered from 0.
    Evaluators may be in the cluster. An index may be a string, and the addresses of a type a list or, as
    `tf.train.ClusterSpec` allows, a mapping of index to address. Other keys (`job`, `environment`, `task.trial`,
    `rpc_layer`, …) are ignored.

    Returns:
        The cluster; None for a single process, without a cluster or with only one task in it. (A lone chief does not
        know of an evaluator outside its cluster, and counts as a single process.)
    """
    if not text.strip():
        return None
    try:
        whole = json.loads(text)
        listed = {kind: _listed(kind, value) for kind, value in (whole.get("cluster") or {}).items()}
        jobs = {kind: addresses for kind, addresses in listed.items() if addresses}
        given = whole.get("task") or {}
        # Without a cluster the default is worker 0.
        given = given if jobs else {"type": WORKER, "index": 0, **given}
        task = Task(CHIEF if given["type"] == _MASTER else given["type"], int(given["index"]))
    except (ValueError, TypeError, AttributeError, KeyError, ArithmeticError, RecursionError) as error:
        what = f"it cannot be read: {type(error).__name__}: {reprlib.repr(str(error))}: {reprlib.repr(text)}"
        raise _wrong(what, _EXAMPLE) from None
    if not jobs:
        if task not in (Task(CHIEF, 0), Task(WORKER, 0)):
            # A task that trained alone would overwrite the files of the others.
            raise _wrong(f"the task is {task.name}, and there is no cluster", _EXAMPLE)
        return None
    if _MASTER in jobs:
        if CHIEF in jobs:
            raise _wrong("the cluster has both `chief` and `master`", "one of the two: they mean the same")
        jobs[CHIEF] = jobs.pop(_MASTER)
    if CHIEF not in jobs and WORKER not in jobs:
        raise _wrong(f"the cluster has neither chief nor worker: {_counts(jobs)}", _EXAMPLE)
    evaluators = len(jobs.get(EVALUATOR, ()))
    is_outside = task.type == EVALUATOR and not evaluators
    if not 0 <= task.index < len(jobs.get(task.type, ())) and not is_outside:
        raise _no_such_task(task, jobs)
    jobs.pop(EVALUATOR, None)
    if CHIEF not in jobs:
        jobs[CHIEF], jobs[WORKER] = jobs[WORKER][:1], jobs[WORKER][1:]
        if task.type == WORKER:
            task = Task(WORKER, task.index - 1) if task.index else Task(CHIEF, 0)
    config = TfConfig(Cluster(jobs), task)
    return config if len(config.cluster.tasks) + evaluators > 1 or task.type == EVALUATOR else None


def from_slurm(environment: Mapping[str, str]) -> Optional[TfConfig]:
    """Makes a cluster of the tasks of a SLURM step: rank 0 is the chief, the others are workers.

    TensorFlow's `SlurmClusterResolver` reads the same variables, but needs a GPU, and sorts the nodes by name, so that
    in `n[9-10]` each of the two nodes would take itself for the other.
    """
    if "SLURM_PROCID" not in environment or environment.get("SLURM_STEP_NUM_TASKS", "1") == "1":
        return None
    from tensorflow.python.distribute.cluster_resolver import slurm_cluster_resolver

    names = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE")
    try:
        rank, count = (int(environment[name]) for name in names[:2])
        nodes = slurm_cluster_resolver.expand_hostlist(environment[names[2]])
        sizes = slurm_cluster_resolver.expand_tasks_per_node(environment[names[3]])
        if not (len(nodes) == len(sizes) and 0 <= rank < count == sum(sizes)):
            raise ValueError("they contradict each other")
    except (KeyError, ValueError) as error:
        given = ", ".join(f"{name}={environment.get(name, '(not set)')}" for name in names)
        raise DeclarationError(
            f"SLURM's variables do not describe a step: {given}: {error}",
            expected="what srun sets",
            todo="start the training with srun, or set TF_CONFIG; TF_CONFIG='{}' trains in a single process",
        ) from None
    nodes_ports = [(node, _SLURM_PORT + local) for node, size in zip(nodes, sizes) for local in range(size)]
    if environment.get("SLURMD_NODENAME", nodes_ports[rank][0]) != nodes_ports[rank][0]:
        raise DeclarationError(
            f"SLURM runs rank {rank} on {environment['SLURMD_NODENAME']}, and not on {nodes_ports[rank][0]}",
            expected="ranks that fill one node after the other",
            todo="start the training with srun --distribution=block",
        )
    addresses = tuple(f"{node}:{port}" for node, port in nodes_ports)
    cluster = Cluster({CHIEF: addresses[:1], WORKER: addresses[1:]})
    return TfConfig(cluster, cluster.tasks[rank])


def _listed(kind: str, value: Any) -> tuple[str, ...]:
    """Returns the addresses of one type in the order of their indices."""
    if kind not in (*_TYPES, _MASTER):
        raise _wrong(f"there is no task type {reprlib.repr(kind)}", f"one of {', '.join((*_TYPES, _MASTER))}")
    if isinstance(value, dict) and sorted(value) == sorted(map(str, range(len(value)))):
        # A sparse mapping is refused: the chief and the number of workers would be unknown.
        value = [value[str(index)] for index in range(len(value))]
    if not isinstance(value, list) or not all(isinstance(address, str) for address in value):
        raise _wrong(f"cluster.{kind} is {reprlib.repr(value)}", 'a list of addresses, as in ["localhost:2222"]')
    return tuple(value)


def _counts(jobs: Mapping[str, tuple[Any, ...]]) -> str:
    return ", ".join(f"{len(addresses)} {kind}" for kind, addresses in jobs.items())


def _no_such_task(task: Task, jobs: Mapping[str, tuple[Any, ...]]) -> DeclarationError:
    return _wrong(
        f"the task is {task.name}, and the cluster has {_counts(jobs)}", "a task of the cluster, from index 0"
    )


def _wrong(what: str, expected: str) -> DeclarationError:
    return DeclarationError(f"{VARIABLE} is wrong: {what}", expected=expected, todo=_UNSET)
