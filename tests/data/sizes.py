"""Opens sources for tests, counts their examples and reads them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfx_estimator.data.sources import ExampleRange, open_source
from tfx_estimator.data.sources.source import ImageSource
from tfx_estimator.pipeline.config.data import DataSection


def opened(dataset: object, **changes: Any) -> ImageSource:
    return open_source(DataSection(dataset=str(dataset), **changes))


def split_sizes(source: ImageSource) -> dict[str, int]:
    return {split: sum(lengths) for split, lengths in source.shard_lengths().items()}


def read_all(source: ImageSource, split: str = "train") -> list[tuple[np.ndarray, int]]:
    return list(source.read(ExampleRange(split, 0, split_sizes(source)[split])))
