"""Checks of the `trainer.distribution` section: what a strategy cannot do on this stack is refused, with the reason."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.config.declaration import Declaration
from pipeline.config.distribution import Distribution, Strategy, TrainStrategy
from pipeline.config.problems import Problem

_PATH = "trainer.distribution"
# Key -> the strategies that it belongs to.
_OWNERS: dict[str, tuple[str, ...]] = {
    "cross_device_ops": ("mirrored",),
    "num_packs": ("mirrored",),
    "workers": ("multi_worker_mirrored", "parameter_server"),
    "ps": ("parameter_server",),
    "communication": ("multi_worker_mirrored",),
    "bytes_per_pack": ("multi_worker_mirrored",),
    "timeout_seconds": ("multi_worker_mirrored",),
    "tpu": ("tpu",),
}


def check_distribution(declaration: Declaration) -> Iterator[Problem]:
    """Checks both strategies, the batches that they split, and the evaluator.

    Args:
        declaration: Typed values.

    Yields:
        The problems.
    """
    trainer = declaration.trainer
    distribution = trainer.distribution
    for which, section in (("train", distribution.train), ("eval", distribution.eval)):
        yield from _options(f"{_PATH}.{which}", section)
        yield from _devices(f"{_PATH}.{which}", section)
    yield from _cluster(f"{_PATH}.train", distribution.train)
    eval_replicas = 1 if distribution.eval.strategy == "one_device" else distribution.eval.devices.count
    batches = (
        ("train", "global_batch_size", distribution.train.replicas),
        ("eval", "eval_batch_size", eval_replicas),
    )
    for which, key, replicas in batches:
        yield from _batch(which, key, getattr(trainer, key), replicas)
    yield from _evaluator(declaration)
    workers = distribution.train.worker_count
    if distribution.sharding == "file" and distribution.train.is_cluster and declaration.data.shards < workers:
        yield Problem(
            "data.shards",
            f"{declaration.data.shards} files cannot be shared among {workers} workers",
            f"at least {workers}, one file for each worker",
            f"raise it, or set {_PATH}.sharding to element",
            value=str(declaration.data.shards),
            depends=(f"{_PATH}.sharding", f"{_PATH}.train.workers"),
        )


def _options(path: str, section: Strategy) -> Iterator[Problem]:
    """Options of another strategy than the declared one."""
    for key, owners in _OWNERS.items():
        field = section.__fields__.get(key)
        # A default may stand there: `show` writes every value.
        if field is None or section.strategy in owners or getattr(section, key) == field.default:
            continue
        yield Problem(
            f"{path}.{key}",
            f"the strategy {section.strategy} has no {key}",
            f"{key} only with {' or '.join(owners)}",
            f"remove it, or change {path}.strategy",
            value=str(getattr(section, key)),
            depends=(f"{path}.strategy",),
        )
    if section.num_packs is not None and section.cross_device_ops == "reduction_to_one_device":
        yield Problem(
            f"{path}.num_packs",
            "reduction_to_one_device packs no gradients",
            "num_packs only with hierarchical_copy or nccl",
            f"remove it, or change {path}.cross_device_ops",
            value=str(section.num_packs),
            depends=(f"{path}.cross_device_ops",),
        )


def _devices(path: str, section: Strategy) -> Iterator[Problem]:
    devices = section.devices
    on_devices = (f"{path}.devices.cpu", f"{path}.devices.gpu")
    if devices.cpu is not None and devices.gpu is not None:
        todo = f"remove one: --set {on_devices[0]}=null"
        yield Problem(f"{path}.devices", "both cpu and gpu are given", "one of the two", todo, depends=on_devices)
        return
    if section.strategy == "one_device" and devices.count > 1:
        yield Problem(
            f"{path}.devices",
            f"the strategy one_device uses one device, not {devices.count}",
            "1, or the strategy mirrored",
            f"set {path}.strategy to mirrored, or leave devices out",
            depends=(f"{path}.strategy", *on_devices),
        )
    if section.strategy == "mirrored" and section.cross_device_ops == "nccl" and not devices.gpu:
        yield _needs_gpus(f"{path}.cross_device_ops", "reduction_to_one_device", on_devices)


def _cluster(path: str, section: TrainStrategy) -> Iterator[Problem]:
    on_devices = (f"{path}.devices.cpu", f"{path}.devices.gpu")
    if section.is_cluster and (section.devices.cpu or 1) > 1:
        yield Problem(
            f"{path}.devices",
            f"a process of {section.strategy} trains on one CPU device: TensorFlow ignores the others",
            "cpu: 1, or no devices",
            f"raise {path}.workers instead",
            value=f"cpu: {section.devices.cpu}",
            depends=(f"{path}.strategy", *on_devices),
        )
    if section.strategy == "multi_worker_mirrored" and section.communication == "nccl" and not section.devices.gpu:
        yield _needs_gpus(f"{path}.communication", "ring", on_devices)
    if section.strategy == "tpu":
        if not section.tpu:
            todo = f"set {path}.tpu: grpc://ADDRESS:8470, or the TPU's name"
            yield Problem(f"{path}.tpu", "no TPU is named", "its name or address", todo, depends=(f"{path}.strategy",))
        if section.devices.cpu or section.devices.gpu:
            what = "a TPU's cores are its own"
            todo = "remove the devices"
            yield Problem(f"{path}.devices", what, "no devices with the strategy tpu", todo, depends=on_devices)


def _batch(which: str, key: str, batch: int, replicas: int) -> Iterator[Problem]:
    if batch % replicas == 0:
        return
    path = f"{_PATH}.{which}"
    lower = batch - batch % replicas
    near = f"{lower} or {lower + replicas}" if lower else str(replicas)
    yield Problem(
        f"trainer.{key}",
        f"{batch} examples do not divide evenly among {replicas} replicas ({path})",
        f"a multiple of {replicas}",
        f"for example {near}",
        value=str(batch),
        depends=(f"{path}.strategy", f"{path}.devices.cpu", f"{path}.devices.gpu", f"{path}.workers"),
    )


def _evaluator(declaration: Declaration) -> Iterator[Problem]:
    trainer = declaration.trainer
    distribution: Distribution = trainer.distribution
    on_evaluator = (f"{_PATH}.evaluator",)
    if not distribution.evaluator:
        for key in ("start_delay_secs", "throttle_secs"):
            value = getattr(distribution, key)
            if value != distribution.__fields__[key].default:
                what = "there is no evaluator task to delay"
                todo = f"set {_PATH}.evaluator: true, or remove it"
                expected = f"{key} only with evaluator: true"
                yield Problem(f"{_PATH}.{key}", what, expected, todo, value=str(value), depends=on_evaluator)
        return
    if not distribution.train.is_cluster:
        yield Problem(
            f"{_PATH}.evaluator",
            f"an evaluator stands beside a cluster; with {distribution.train.strategy} the one process evaluates",
            "false, or the strategy multi_worker_mirrored or parameter_server",
            "remove it",
            value="true",
            depends=(f"{_PATH}.train.strategy",),
        )
    elif trainer.checkpoint_steps >= trainer.train_steps:
        yield Problem(
            f"{_PATH}.evaluator",
            f"the evaluator would have nothing to evaluate before the end: a checkpoint comes every "
            f"{trainer.checkpoint_steps} steps, and training has {trainer.train_steps}",
            "trainer.save_checkpoints_steps below trainer.train_steps",
            "lower trainer.save_checkpoints_steps, or remove the evaluator",
            value="true",
            depends=("trainer.save_checkpoints_steps", "trainer.train_steps"),
        )


def _needs_gpus(path: str, instead: str, on_devices: tuple[str, ...]) -> Problem:
    return Problem(
        path,
        "nccl adds up gradients of GPUs, and no GPU is declared",
        "devices: {gpu: N}",
        f"declare the GPUs, or use {instead}",
        value="nccl",
        depends=on_devices,
    )
