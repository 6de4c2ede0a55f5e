"""Traits of each tf.distribute strategy, and its short form. Other modules query the traits, not the name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

# Strategies of one process, and all strategies.
ProcessStrategy = Literal["one_device", "mirrored", "central_storage"]
AnyStrategy = Literal[ProcessStrategy, "multi_worker_mirrored", "parameter_server", "tpu"]
# The default strategy; that for several devices of a process; that for several processes.
ONE_DEVICE, ON_DEVICES, ON_WORKERS = "one_device", "mirrored", "multi_worker_mirrored"
# Names of other tools -> ours.
ALIASES = {"none": ONE_DEVICE, "collective_all_reduce": ON_WORKERS}


@dataclass(frozen=True)
class StrategyTraits:
    """Traits of a strategy, independent of its options.

    Args:
        synchronous: All replicas take part in each step, which updates the weights once.
        asynchronous: Each worker updates the weights at its own pace, on parameter servers.
        is_cluster: It runs in several processes.
        on_devices: Its replicas are devices of one process.
        on_tpu: Its replicas are the cores of a TPU.
        one_copy: Its replicas share one copy of the weights, on the host.
        options: Strategy-specific keys of the section that it takes.
    """

    synchronous: bool = False
    asynchronous: bool = False
    is_cluster: bool = False
    on_devices: bool = False
    on_tpu: bool = False
    one_copy: bool = False
    options: tuple[str, ...] = ()

    @property
    def distributes(self) -> bool:
        """True if there may be several replicas."""
        return self.synchronous or self.asynchronous


TRAITS: dict[str, StrategyTraits] = {
    "one_device": StrategyTraits(),
    "mirrored": StrategyTraits(
        synchronous=True, on_devices=True, options=("cross_device_ops", "num_packs", "gradient_compression")
    ),
    "central_storage": StrategyTraits(synchronous=True, on_devices=True, one_copy=True),
    "multi_worker_mirrored": StrategyTraits(
        synchronous=True,
        is_cluster=True,
        options=("workers", "communication", "bytes_per_pack", "gradient_compression", "timeout_seconds"),
    ),
    "parameter_server": StrategyTraits(
        asynchronous=True, is_cluster=True, options=("workers", "ps", "variable_partitioner")
    ),
    "tpu": StrategyTraits(synchronous=True, on_tpu=True, options=("tpu",)),
}
# Strategies that take a number of devices or workers, as in `mirrored:2`.
COUNTED = tuple(name for name, traits in TRAITS.items() if traits.on_devices or traits.is_cluster)
# All strategy-specific options.
OPTIONS = tuple(dict.fromkeys(option for traits in TRAITS.values() for option in traits.options))

_UNCOUNTED = [name for name in TRAITS if name not in COUNTED]
# For editors that check YAML by the JSON schema.
STRATEGY_SCHEMA = {"type": "string", "pattern": rf"^(({'|'.join(COUNTED)})(:[1-9][0-9]?)?|{'|'.join(_UNCOUNTED)})$"}
_COUNT = re.compile(r"[0-9]{1,4}")


def expand_strategy(value: Any) -> Any:
    """Expands a strategy's short form: the number is that of logical CPUs, or of a cluster's workers."""
    if not isinstance(value, str):
        return value
    name, _, count = value.partition(":")
    if name not in COUNTED or not _COUNT.fullmatch(count):
        return {"strategy": value}
    sizes = {"workers": int(count)} if TRAITS[name].is_cluster else {"devices": {"cpu": int(count)}}
    return {"strategy": name, **sizes}
