"""Checks that the machines of a deployment have the GPUs that training uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.config.deploy import Nodes, gpus
from tfx_estimator.pipeline.config.distribution import Devices, Distribution
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.rules.rule import Case
from tfx_estimator.pipeline.platforms.rules import rules_of

_TRAIN, _EVAL = "trainer.distribution.train.devices.gpu", "trainer.distribution.eval.devices.gpu"


class _Machine(NamedTuple):
    """A container that trains or evaluates, or several alike; `path` is where it is declared."""

    name: str
    path: str
    gpus: int
    # Needed GPUs, by the key that declares them.
    wanted: dict[str, int]
    # Training processes that share the container without declared devices.
    shared: int = 0


def check_gpus(case: Case) -> Iterator[Problem]:
    """Checks that training finds its GPUs, before hours are spent on the steps before it."""
    distribution = case.distribution
    for machine in _machines(case) if case.target else ():
        depends = (machine.path, "deploy.nodes", "trainer.distribution.train")
        key, wanted = max(machine.wanted.items(), key=lambda item: item[1])
        processes = machine.shared + (machine.wanted.get(_EVAL, 0) if distribution.evaluator else 0)
        if 0 < machine.gpus < processes:
            what = (
                f"{machine.name} has {machine.gpus} GPUs for the {processes} processes of its container, which need "
                "one each: all training processes would run on CPU"
            )
            todo = f"set {machine.path}.accelerators: {processes}, or devices: {{cpu: 1}} and no accelerator"
            path, expected = "trainer.distribution.train.workers", "a GPU for each process, or train.devices"
            yield Problem(path, what, expected, todo, value=str(machine.shared), depends=depends)
        if wanted > machine.gpus:
            what = f"{machine.name} needs {wanted} GPUs, and has {machine.gpus or 'none'}"
            todo = f"set {machine.path}.accelerator, and accelerators: {wanted}; or train on fewer"
            section = distribution.train if key == _TRAIN else distribution.eval
            value = section.devices.text.partition(": ")[2]
            yield Problem(key, what, f"at most the accelerators of {machine.path}", todo, value=value, depends=depends)


def note_machines(case: Case) -> Iterator[str]:
    """Notes clusters that share one machine, and accelerators that need another image."""
    deploy, platform, processes = case.deploy, case.platform, sum(case.distribution.pods.values())
    if processes > 1 and not rules_of(case.target).machines(deploy, case.distribution, case.target):
        yield (
            f"trainer.distribution: {processes} processes share one container, that of the step Trainer: "
            f"{platform.clusters}"
        )
    step = rules_of(case.target).step
    nodes = [step(deploy, name) for name in Nodes.steps() if platform.runs_steps]
    there = [each.gpus for each in _machines(case)]
    if any(there) or any(gpus(node.accelerator, node.accelerators) for node in nodes):
        yield (
            f"deploy.image: steps have accelerators: build it with --build-arg LOCK={stacks.current().lock} "
            "and NVIDIA's libraries, see docs/container.md; TensorFlow in the default image uses CPUs only"
        )


def _machines(case: Case) -> Iterator[_Machine]:
    distribution, rules = case.distribution, rules_of(case.target)
    own = rules.machines(case.deploy, distribution, case.target)
    for role, wanted in _by_role(distribution).items():
        if role in own:
            name, path, count = own[role]
            yield _Machine(name, path, count, wanted)
    train, evaluation = distribution.train, _least(distribution.eval.devices)
    # Processes of one container do not share GPUs.
    together = _least(train.devices) * train.worker_count
    wanted = {_TRAIN: together, _EVAL: evaluation}
    if distribution.evaluator and together:
        wanted = {_TRAIN: together + evaluation}
    shared = train.worker_count if train.worker_count > 1 and not train.devices.indices else 0
    steps = ["Trainer"] * (not own) + ["Tuner"] * (case.tune is not None)
    for step in steps if case.platform.runs_steps else ():
        node = rules.step(case.deploy, step)
        count = gpus(node.accelerator, node.accelerators)
        yield _Machine(f"the step {step}", f"deploy.nodes.{step}", count, wanted, shared)


def _by_role(distribution: Distribution) -> dict[str, dict[str, int]]:
    train, evaluation = {_TRAIN: _least(distribution.train.devices)}, {_EVAL: _least(distribution.eval.devices)}
    # Without an evaluator, the chief's machine also evaluates.
    chief = train if distribution.evaluator else {**train, **evaluation}
    wanted = {"chief": chief, "worker": train, "evaluator": evaluation}
    return {role: wanted[role] for role in distribution.pods if role in wanted}


def _least(devices: Devices) -> int:
    """Returns the number of GPUs that a machine needs to have the declared indices."""
    return max(devices.indices) + 1 if devices.gpu else 0
