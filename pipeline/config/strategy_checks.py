"""Checks of the `trainer.distribution` section: what a strategy cannot do on this stack is refused, with the reason."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Optional

from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.distribution import Distribution, Strategy, TrainStrategy
from tfx_estimator.pipeline.config.problems import Problem, nearest_multiples
from tfx_estimator.pipeline.config.section import Section
from tfx_estimator.pipeline.config.strategies import OPTIONS, taking
from tfx_estimator.pipeline.config.yaml_text import inline

_PATH = "trainer.distribution"
# In a cluster that somebody else started, one of these variables is always set.
_OF_OTHERS = ("TF_CONFIG", "SLURM_PROCID")


def check_distribution(declaration: Declaration) -> Iterator[Problem]:
    """Checks both strategies, the evaluator, and what the built-in input and RunConfig make of them.

    Args:
        declaration: Typed values.

    Yields:
        The problems.
    """
    distribution = declaration.trainer.distribution
    yield from check_strategies(distribution)
    yield from _deterministic(declaration)
    # A module file has batches, files and checkpoints of its own.
    if declaration.trainer.module_file is not None:
        yield from check_own_input(distribution)
    else:
        yield from _batch("train", "global_batch_size", declaration.trainer.global_batch_size, distribution.train)
        yield from _batch("eval", "eval_batch_size", declaration.trainer.eval_batch_size, distribution.eval)
        yield from _shards(declaration)


def check_strategies(distribution: Distribution) -> Iterator[Problem]:
    """Checks what the section alone can tell.

    Args:
        distribution: Typed values.

    Yields:
        The problems.
    """
    for which, section in (("train", distribution.train), ("eval", distribution.eval)):
        yield from _options(f"{_PATH}.{which}", section)
        yield from _devices(f"{_PATH}.{which}", section)
    yield from _cluster(f"{_PATH}.train", distribution.train)
    yield from _lists(distribution)
    yield from _evaluator(distribution)


def check_own_input(distribution: Distribution) -> Iterator[Problem]:
    """Checks what another input_fn than the built-in one makes of the section.

    Args:
        distribution: Typed values.

    Yields:
        The problems.
    """
    if distribution.sharding != "element":
        yield Problem(
            f"{_PATH}.sharding",
            "it is for the built-in input_fn: the batches of another one are split, or it shards by `input_context`",
            "element",
            "remove it; to read files of its own, let the input_fn take `input_context`",
            value=distribution.sharding,
        )
    yield from check_own_step(distribution, "what trains here adds up its gradients by itself")


def check_own_step(distribution: Distribution, reason: str) -> Iterator[Problem]:
    """Checks what another training step than the built-in one makes of the section.

    Args:
        distribution: Typed values.
        reason: Why the step cannot be told.

    Yields:
        The problems.
    """
    if distribution.train.gradient_compression != "none":
        yield Problem(
            f"{_PATH}.train.gradient_compression",
            f"it is for the built-in training step: {reason}",
            "none; or a network function as trainer.model",
            "remove it",
            value=distribution.train.gradient_compression,
            depends=("trainer.model", "trainer.module_file"),
        )


def _written(value: Any) -> str:
    """A value as it was declared: of a section, what is not null."""
    if isinstance(value, Section):
        value = {key: each for key, each in value.dict().items() if each is not None}
    return inline(value)


def _options(path: str, section: Strategy) -> Iterator[Problem]:
    """Options of another strategy than the declared one."""
    for key in OPTIONS:
        field = section.__fields__.get(key)
        # A default may stand there: `show` writes every value.
        if field is None or section.takes(key) or getattr(section, key) == field.default:
            continue
        names = " or ".join(taking(key))
        yield Problem(
            f"{path}.{key}",
            f"the strategy {section.strategy} takes no {key}",
            f"{key} only with the strategy {names}",
            f"remove it, or set {path}.strategy to {names}",
            value=_written(getattr(section, key)),
            depends=(f"{path}.strategy",),
        )
    packs_none = section.takes("num_packs") and section.cross_device_ops == "reduction_to_one_device"
    if packs_none and section.num_packs is not None:
        yield Problem(
            f"{path}.num_packs",
            "reduction_to_one_device packs no gradients",
            "num_packs only with the cross_device_ops hierarchical_copy or nccl",
            f"remove it, or set {path}.cross_device_ops to hierarchical_copy",
            value=str(section.num_packs),
            depends=(f"{path}.cross_device_ops",),
        )


def _devices(path: str, section: Strategy) -> Iterator[Problem]:
    if problem := _wrong_devices(path, section):
        yield problem
    elif section.takes("cross_device_ops") and section.cross_device_ops == "nccl" and not section.devices.gpu:
        yield _needs_gpus(path, "cross_device_ops", "reduction_to_one_device")
    on_nccl = section.takes("cross_device_ops") and section.cross_device_ops == "nccl"
    if on_nccl and getattr(section, "gradient_compression", "none") == "bf16":
        yield Problem(
            f"{path}.gradient_compression",
            "TensorFlow's NcclAllReduce adds up float16, float32 and float64, and no bfloat16",
            "fp16, or other cross_device_ops than nccl",
            f"set it to fp16, or {path}.cross_device_ops to hierarchical_copy",
            value="bf16",
            depends=(f"{path}.cross_device_ops",),
        )


def _wrong_devices(path: str, section: Strategy) -> Optional[Problem]:
    strategy, devices = section.strategy, section.devices
    if section.takes("tpu") and (devices.cpu or devices.gpu):
        what = "the strategy tpu trains on the TPU's own cores"
        expected, todo = "no devices", "remove the devices"
    elif devices.cpu and devices.gpu:
        what = "both cpu and gpu are given"
        expected, todo = "one of the two", f"remove one: --set {path}.devices.cpu=null"
    elif not section.distributes and devices.count > 1:
        what = f"the strategy one_device uses one device, not {devices.count}"
        expected = "1, or a strategy of several devices: mirrored or central_storage"
        todo = f"remove the devices, or set {path}.strategy to mirrored"
    elif section.is_cluster and devices.cpu and devices.indices != (0,):
        what = f"TensorFlow uses one CPU device in each process of {strategy}, and ignores the others"
        expected = f"no devices, or cpu: 1; not {devices.text}"
        todo = f"remove the devices; for more replicas raise {path}.workers"
    else:
        return None
    return Problem(f"{path}.devices", what, expected, todo, depends=(f"{path}.strategy", *_on_devices(path)))


def _cluster(path: str, section: TrainStrategy) -> Iterator[Problem]:
    if section.takes("communication") and section.communication == "nccl" and not section.devices.gpu:
        yield _needs_gpus(path, "communication", "ring")
    if section.takes("tpu") and not (section.tpu or "").strip():
        what, expected = "the strategy tpu needs to know which TPU", "its address, grpc://HOST:8470, or its name"
        yield Problem(f"{path}.tpu", what, expected, f"set {path}.tpu", depends=(f"{path}.strategy",))


def _others_start_it() -> bool:
    """Does somebody else start the cluster that this process is part of."""
    return any(os.environ.get(name, "").strip() for name in _OF_OTHERS)


def _is_open(section: Strategy) -> bool:
    """Will the number of workers be known only when somebody else's cluster is: see `Loaded.check_cluster`."""
    return (
        isinstance(section, TrainStrategy) and section.takes("workers") and not section.workers and _others_start_it()
    )


def _lists(distribution: Distribution) -> Iterator[Problem]:
    """Lists of GPUs for one process, if several share this machine."""
    train = distribution.train
    if not train.is_cluster or _others_start_it():
        return
    workers = _count(train.worker_count, "worker")
    for which, section, several in (
        ("train", train, train.worker_count > 1),
        ("eval", distribution.eval, distribution.evaluator),
    ):
        gpu = section.devices.gpu
        if not several or not isinstance(gpu, tuple):
            continue
        beside = " and an evaluator" if distribution.evaluator else ""
        path = f"{_PATH}.{which}.devices"
        yield Problem(
            f"{path}.gpu",
            f"a list names the GPUs of one process, and {workers}{beside} share this machine: each needs its own",
            f"how many GPUs each process gets, gpu: {len(gpu)}; or a list, where TF_CONFIG describes the cluster",
            f"set {path}.gpu to {len(gpu)}; CUDA_VISIBLE_DEVICES says which GPUs there are to share out",
            value=str(list(gpu)),
            depends=(path, f"{_PATH}.train.strategy", f"{_PATH}.train.workers", f"{_PATH}.evaluator"),
        )


def _batch(which: str, key: str, batch: int, section: Strategy) -> Iterator[Problem]:
    workers, devices = _replicas(section)
    replicas, path = workers * devices, f"{_PATH}.{which}"
    if batch % replicas == 0 or _is_open(section) or _wrong_devices(path, section):
        return
    parts = [f"{count} {name}" for count, name in ((workers, "workers"), (devices, "devices")) if count > 1]
    yield Problem(
        f"trainer.{key}",
        f"{batch} examples do not divide evenly among {' x '.join(parts)} ({path})",
        f"a multiple of {replicas}",
        f"set it to {nearest_multiples(batch, replicas)}, or change {path}",
        value=str(batch),
        depends=(f"{path}.strategy", f"{path}.workers", *_on_devices(path)),
    )


def replica_batch(declaration: Declaration) -> Optional[int]:
    """Returns how many examples of a step's batch each replica trains with; None where that is not known here.

    Args:
        declaration: Typed values.
    """
    section = declaration.trainer.distribution.train
    if _is_open(section) or _wrong_devices("trainer.distribution.train", section):
        return None
    workers, devices = _replicas(section)
    return declaration.trainer.global_batch_size // (workers * devices)


def _replicas(section: Strategy) -> tuple[int, int]:
    """The workers that share a batch, and the declared devices of each that do."""
    # An asynchronous worker takes a whole batch. How many cores a TPU has is not known here.
    workers = section.worker_count if isinstance(section, TrainStrategy) and section.in_step else 1
    return workers, section.devices.count


def _shards(declaration: Declaration) -> Iterator[Problem]:
    distribution, shards = declaration.trainer.distribution, declaration.shards
    workers = distribution.train.worker_count
    if distribution.sharding != "file" or shards >= workers or _is_open(distribution.train):
        return
    yield Problem(
        "data.shards",
        f"{_count(shards, 'file')} cannot be shared among {workers} workers ({_PATH}.sharding: file)",
        f"at least {workers}, one file for each worker",
        f"raise it, or set {_PATH}.sharding to element",
        value=str(shards),
        depends=(f"{_PATH}.sharding", f"{_PATH}.train.strategy", f"{_PATH}.train.workers"),
    )


def _evaluator(distribution: Distribution) -> Iterator[Problem]:
    path = f"{_PATH}.evaluator"
    if not distribution.evaluator:
        # A process that trains alone evaluates as well.
        for key in ("start_delay_secs", "throttle_secs") if distribution.train.is_cluster else ("start_delay_secs",):
            value = getattr(distribution, key)
            # A value that is the evaluator's own behaviour asks for nothing.
            if value not in (None, {"start_delay_secs": 0, "throttle_secs": 1}[key]):
                yield Problem(
                    f"{_PATH}.{key}",
                    "it sets the pace of the evaluator task, and there is none",
                    f"{key} only with evaluator: true",
                    f"remove it, or set {path} to true",
                    value=str(value),
                    depends=(path,),
                )
    elif not distribution.train.is_cluster:
        yield Problem(
            path,
            f"an evaluator stands beside a cluster; the strategy {distribution.train.strategy} has one process, which "
            "evaluates as well",
            "false, or the strategy multi_worker_mirrored or parameter_server",
            f"remove it, or change {_PATH}.train.strategy",
            value="true",
            depends=(f"{_PATH}.train.strategy",),
        )


def _deterministic(declaration: Declaration) -> Iterator[Problem]:
    train = declaration.trainer.distribution.train
    if declaration.trainer.deterministic and train.asynchronous:
        yield Problem(
            "trainer.deterministic",
            "the workers of parameter_server update the weights each at its own pace: no two runs end with equal bits",
            "false, or a strategy whose replicas train in step",
            f"remove it, or set {_PATH}.train.strategy to multi_worker_mirrored",
            value="true",
            depends=(f"{_PATH}.train.strategy",),
        )


def _needs_gpus(path: str, key: str, instead: str) -> Problem:
    return Problem(
        f"{path}.{key}",
        "nccl adds up gradients on GPUs, and no GPU is declared",
        f"{path}.devices: {{gpu: N}}, N of each process",
        f"declare the GPUs, or set {path}.{key} to {instead}",
        value="nccl",
        depends=(f"{path}.strategy", *_on_devices(path)),
    )


def _on_devices(path: str) -> tuple[str, str]:
    return f"{path}.devices.cpu", f"{path}.devices.gpu"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
