"""Opens sources for tests, and counts their examples."""

from __future__ import annotations

from typing import Any

from tfx_estimator.data.sources import open_source
from tfx_estimator.data.sources.source import ImageSource
from tfx_estimator.pipeline.config.data import DataSection


def opened(dataset: object, **changes: Any) -> ImageSource:
    return open_source(DataSection(dataset=str(dataset), **changes))


def split_sizes(source: ImageSource) -> dict[str, int]:
    return {split: sum(lengths) for split, lengths in source.shard_lengths().items()}
