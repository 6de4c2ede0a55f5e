"""What a training step sends, for each strategy; imports no TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from tfx_estimator.pipeline.config.distribution import TrainStrategy
from tfx_estimator.pipeline.config.sync import SyncEvery


@dataclass(frozen=True)
class Wire:
    """What is sent in one step.

    Args:
        sent: Bytes that one process that trains sends to others, or takes from them if that is more.
        total: The same of all processes together, parameter servers included, each byte counted once.
        between_devices: Bytes between the devices of one process.
        how: What is sent, in words.
    """

    sent: int = 0
    total: int = 0
    between_devices: int = 0
    how: str = "nothing: there is one device"


def wire_of(
    train: TrainStrategy,
    weights: int,
    gradients: int,
    slots: int = 0,
    sync: Optional[SyncEvery] = None,
    chief_trains: bool = True,
    divided: bool = False,
    cuts: int = 0,
    tables: int = 0,
) -> Wire:
    """Counts the bytes of one step.

    Args:
        weights: Bytes of the variables.
        gradients: Bytes of the gradients, before they are compressed.
        slots: Bytes of the optimizer's slots.
        sync: The declared averaging of weights, which is then what is sent.
        chief_trains: Does the chief of parameter servers do steps as well, as an Estimator's does; on the Keras paths
            it hands them out.
        divided: Are parts of the network on several devices of the process.
        cuts: Bytes that go between these.
        tables: Bytes of the gradients of embeddings, among the others, which are not compressed.

    Returns:
        What is sent. A ring of n sends 2 (n - 1) / n of the gradients from each of its members.
    """
    devices, what = train.devices.count, "the gradients"
    if train.gradient_compression != "none":
        gradients -= (gradients - tables) // 2
    if sync is not None:
        # As many bytes as the weights that are trained have.
        gradients = (gradients + slots) // sync.steps
        what = f"the weights and slots once in {sync.steps} steps"
    local = 2 * (devices - 1) * gradients
    if train.asynchronous:
        workers = train.worker_count - (not chief_trains)
        each = weights + gradients
        return Wire(weights, workers * each, 0, "each worker pulls the weights, and pushes its gradients")
    if train.is_collective:
        workers = train.worker_count
        total = 2 * (workers - 1) * gradients
        ring = f"a ring all-reduce of {what}: 2 (n - 1) / n of them from each worker"
        return Wire(total // workers, total, workers * local, ring)
    if devices > 1 and train.traits.one_copy:
        how = "each device reads the weights from the host, and sends it its gradients"
        return Wire(0, 0, devices * (weights + gradients), how)
    if devices > 1:
        return Wire(0, 0, local, "gradients to one device and their sum back, or a ring of as many bytes")
    if divided:
        return Wire(0, 0, cuts, "nothing: there is one process")
    return Wire()
