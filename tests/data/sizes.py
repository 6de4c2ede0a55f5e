"""How many examples a source has."""

from __future__ import annotations

from tfx_estimator.data.sources.source import ImageSource


def split_sizes(source: ImageSource) -> dict[str, int]:
    """Returns the number of examples in each split."""
    return {split: sum(lengths) for split, lengths in source.shard_lengths().items()}
