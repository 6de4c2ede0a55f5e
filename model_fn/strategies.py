"""tf.distribute strategies from the declaration."""

from __future__ import annotations

import socket
from typing import Optional

import tensorflow as tf

from pipeline.config.distribution import Strategy, TrainStrategy
from pipeline.errors import DeclarationError

_TPU_SECONDS = 10.0
_TPU_PORT = 8470


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
    """Builds the declared strategy. Must run before any TensorFlow op, with TF_CONFIG set where it is a cluster's.

    Args:
        section: What was declared.

    Returns:
        The strategy; None where TensorFlow chooses the one device by itself, which costs 7 % less than a strategy that
        names it.

    Raises:
        DeclarationError: The machine has not the declared devices, or the TPU does not answer.
    """
    if section.strategy == "one_device" and section.devices.cpu is None and section.devices.gpu is None:
        return None
    if isinstance(section, TrainStrategy) and section.strategy == "tpu":
        return _tpu(section)
    if isinstance(section, TrainStrategy) and section.strategy == "multi_worker_mirrored":
        # Before the devices are listed: that would be an op already.
        return _multi_worker(section)
    if section.strategy == "parameter_server":
        # The class of TensorFlow 1 is the one that an Estimator accepts.
        return tf.compat.v1.distribute.experimental.ParameterServerStrategy()
    devices = _devices(section)
    if section.strategy == "one_device":
        return tf.distribute.OneDeviceStrategy(devices[0])
    if section.strategy == "central_storage":
        return tf.compat.v1.distribute.experimental.CentralStorageStrategy(devices, "/cpu:0")
    # Named explicitly: TensorFlow's own default hangs in an Estimator on CPU.
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=_cross_device_ops(section))


def _cross_device_ops(section: Strategy) -> tf.distribute.CrossDeviceOps:
    if section.cross_device_ops == "reduction_to_one_device":
        return tf.distribute.ReductionToOneDevice()
    packs = {} if section.num_packs is None else {"num_packs": section.num_packs}
    if section.cross_device_ops == "nccl":
        return tf.distribute.NcclAllReduce(**packs)
    return tf.distribute.HierarchicalCopyAllReduce(**packs)


def _multi_worker(section: TrainStrategy) -> tf.distribute.Strategy:
    implementation = tf.distribute.experimental.CommunicationImplementation[section.communication.upper()]
    options = tf.distribute.experimental.CommunicationOptions(
        bytes_per_pack=section.bytes_per_pack, timeout_seconds=section.timeout_seconds, implementation=implementation
    )
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


def _tpu(section: TrainStrategy) -> tf.distribute.Strategy:
    """Asks for the TPU's address and calls there, since TensorFlow itself would wait for it without an end."""
    todo = "check trainer.distribution.train.tpu, and that this machine reaches it"
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=section.tpu)
        address = resolver.master()
        host, _, port = (
            address.split("://")[-1].rpartition(":")
            if address.count(":") > 1
            else (
                address.split("://")[-1],
                "",
                "",
            )
        )
        if address:
            socket.create_connection((host, int(port or _TPU_PORT)), timeout=_TPU_SECONDS).close()
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except Exception as error:
        raise DeclarationError(
            f"the TPU {section.tpu!r} cannot be used: {type(error).__name__}: {error}",
            expected="the name or the grpc:// address of a TPU that answers",
            todo=todo,
        ) from error
    return tf.distribute.TPUStrategy(resolver)


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
