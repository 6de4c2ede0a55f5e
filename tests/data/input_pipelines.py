"""Writes tf.Examples whose labels show their order, and reads them through input pipelines."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.artifacts import example, write_records

SIZES = (20, 13, 27, 19, 11, 25, 5, 30)  # examples per file
TOTAL = sum(SIZES)
RESIDENT = {"streamed": 0, "resident": 1 << 20}
PIPELINES = range(1, 9)


def write(path: Path, examples: Iterable[tuple[bytes, int]]) -> str:
    """Writes (image, label) pairs as tf.Examples."""
    return write_records(path, (example(image=image, label=label) for image, label in examples))


def labels(dataset, batches: int | None = None) -> list[list[int]]:
    return [label.tolist() for _, label in dataset.take(batches or -1).as_numpy_iterator()]


def flat(batches: Iterable[list[int]]) -> list[int]:
    return [label for batch in batches for label in batch]


def context(pipelines: int, index: int, replicas: int = 1):
    """The context of one input pipeline with the given number of replicas."""
    import tensorflow as tf

    return tf.distribute.InputContext(pipelines, index, num_replicas_in_sync=pipelines * replicas)


def global_batches(reader, pipelines: int, steps: int, replicas: int = 1) -> list[list[int]]:
    """Returns the batches of all replicas of all pipelines in each step."""
    read = [
        labels(reader.input_fn("train", context(pipelines, index, replicas)), steps * replicas)
        for index in range(pipelines)
    ]
    return [
        sorted(flat(batch for part in read for batch in part[step * replicas : (step + 1) * replicas]))
        for step in range(steps)
    ]


def one_device(reader, steps: int) -> list[list[int]]:
    return [sorted(batch) for batch in labels(reader.input_fn("train"), steps)]
