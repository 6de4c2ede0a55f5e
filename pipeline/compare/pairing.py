"""Finds the same example in what two runs evaluated."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from tfx_estimator.pipeline.report.examples import DataSet, batches


def digests(data: DataSet, split: str) -> list[bytes]:
    """Returns a digest of the image and the label of each example, in the order of the files.

    Args:
        data: The examples.
        split: Of them.
    """
    return [
        hashlib.blake2b(image + int(label).to_bytes(8, "little", signed=True), digest_size=16).digest()
        for _, images, labels in batches(data, split, -1)
        for image, label in zip(images, labels)
    ]


def match(first: Sequence[bytes], second: Sequence[bytes]) -> np.ndarray | None:
    """Finds the examples of one run among those of another.

    Args:
        first: Digests.
        second: The other's.

    Returns:
        For each of the first its place in the second, int64 [examples]; equal examples are paired in their order. None
        if both are not the same examples.
    """
    orders = [sorted(range(len(each)), key=each.__getitem__) for each in (first, second)]
    if [first[place] for place in orders[0]] != [second[place] for place in orders[1]]:
        return None
    found = np.empty(len(first), np.int64)
    found[orders[0]] = orders[1]
    return found
