"""What each tf.distribute strategy is, and its short form. Nowhere else is one told by its name: ask the section."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

# The strategies of one process, and all.
ProcessStrategy = Literal["one_device", "mirrored", "central_storage"]
AnyStrategy = Literal[ProcessStrategy, "multi_worker_mirrored", "parameter_server", "tpu"]
# What is meant where no strategy is named; of several devices of a process; and of several processes.
ONE_DEVICE, ON_DEVICES, ON_WORKERS = "one_device", "mirrored", "multi_worker_mirrored"
# Names of other tools -> ours.
ALIASES = {"none": ONE_DEVICE, "collective_all_reduce": ON_WORKERS}


@dataclass(frozen=True)
class StrategyTraits:
    """What is true of one strategy, whatever is declared of it.

    Args:
        synchronous: All replicas take part in each step, which updates the weights once.
        asynchronous: Each worker updates the weights at its own pace, on parameter servers.
        is_cluster: Its tasks are several processes.
        on_devices: Its replicas are devices of one process.
        on_tpu: Its replicas are the cores of a TPU.
        one_copy: Its replicas share one copy of the weights, on the host.
        options: Keys of the section that not every strategy takes, and this one does.
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
        """May there be several replicas."""
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
# Those that take a number, as in `mirrored:2`: of devices, or of workers.
COUNTED = tuple(name for name, traits in TRAITS.items() if traits.on_devices or traits.is_cluster)
# Options that not every strategy has.
OPTIONS = tuple(dict.fromkeys(option for traits in TRAITS.values() for option in traits.options))

_UNCOUNTED = [name for name in TRAITS if name not in COUNTED]
# For editors that check YAML by the JSON schema.
STRATEGY_SCHEMA = {"type": "string", "pattern": rf"^(({'|'.join(COUNTED)})(:[1-9][0-9]?)?|{'|'.join(_UNCOUNTED)})$"}
_COUNT = re.compile(r"[0-9]{1,4}")


def expand_strategy(value: Any) -> Any:
    """Writes a strategy's short form as a mapping: `mirrored:2` is 2 logical CPUs, of a cluster it is 2 workers."""
    if not isinstance(value, str):
        return value
    name, _, count = value.partition(":")
    if name not in COUNTED or not _COUNT.fullmatch(count):
        return {"strategy": value}
    sizes = {"workers": int(count)} if TRAITS[name].is_cluster else {"devices": {"cpu": int(count)}}
    return {"strategy": name, **sizes}
