"""TFDS split expressions, for all sources."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from tfx_estimator.pipeline.base.errors import DataError, DataNotFoundError
from tfx_estimator.pipeline.config.data import suggest_splits


@dataclasses.dataclass(frozen=True)
class ExampleRange:
    """Examples `start` to `stop` (exclusive) of one split, in stored order."""

    split: str
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def resolve_split(
    dataset: str, shard_lengths: Mapping[str, Sequence[int]], expression: str
) -> tuple[ExampleRange, ...]:
    """Returns the ranges of a split expression, by TFDS's own rules.

    Args:
        expression: see https://www.tensorflow.org/datasets/splits.
    """
    sizes = {name: sum(lengths) for name, lengths in shard_lengths.items()}
    if sizes.get(expression):
        # Without importing TFDS.
        return (ExampleRange(expression, 0, sizes[expression]),)
    from tensorflow_datasets.core import splits as tfds_splits

    infos = {
        name: tfds_splits.SplitInfo(name=name, shard_lengths=list(lengths), num_bytes=0)
        for name, lengths in shard_lengths.items()
    }
    known = ", ".join(f"{name} ({size:,} examples)" for name, size in sizes.items())
    try:
        absolute = tfds_splits.AbstractSplit.from_spec(expression).to_absolute(infos)
    except (ValueError, NotImplementedError) as error:
        raise DataNotFoundError(
            f"data set {dataset!r} has no split {expression!r}: {_reason(error)}",
            expected=f"a TFDS split expression over {known}, for example `train[:90%]`",
            todo=f"set data.{suggest_splits(list(sizes) or ['train'], len(sizes) > 2)}",
        ) from None
    ranges = tuple(
        ExampleRange(part.splitname, part.from_ or 0, sizes[part.splitname] if part.to is None else part.to)
        for part in absolute
    )
    ranges = tuple(part for part in ranges if part.start < part.stop)
    if not ranges:
        raise DataNotFoundError(
            f"split {expression!r} of data set {dataset!r} holds no examples",
            expected=f"a non-empty part of {known}",
            todo="change data.splits in the declaration",
        )
    return ranges


def reject_overlap(dataset: str, expressions: Mapping[str, str], ranges: Mapping[str, Sequence[ExampleRange]]) -> None:
    """Refuses to evaluate on examples that the model was trained on, or selected by: accuracy would be overrated."""
    usage = {"train": "trained on", "eval": "selected by"}
    for (first, ones), (second, others) in itertools.combinations(ranges.items(), 2):
        for one, other in itertools.product(ones, others):
            start, stop = max(one.start, other.start), min(one.stop, other.stop)
            if one.split == other.split and start < stop:
                raise DataError(
                    f"splits {first}: {expressions[first]!r} and {second}: {expressions[second]!r} of data set "
                    f"{dataset!r} overlap: both hold {one.split}[{start}:{stop}], {stop - start:,} examples",
                    expected=f"in {second} examples that the model was not {usage[first]}",
                    todo="change data.splits, for example to train: `train[:90%]` and eval: `train[90%:]`",
                )


def cut(ranges: Sequence[ExampleRange], parts: int) -> tuple[tuple[ExampleRange, ...], ...]:
    """Cuts concatenated ranges into `parts` pieces whose sizes differ by one at most.

    Each example is in exactly one piece, and the pieces keep the order.
    """
    total = sum(len(examples) for examples in ranges)
    pieces = []
    for index in range(parts):
        low, high = total * index // parts, total * (index + 1) // parts
        piece, offset = [], 0
        for examples in ranges:
            start, stop = max(low - offset, 0), min(high - offset, len(examples))
            if start < stop:
                piece.append(ExampleRange(examples.split, examples.start + start, examples.start + stop))
            offset += len(examples)
        pieces.append(tuple(piece))
    return tuple(pieces)


def _reason(error: Exception) -> str:
    # TFDS prepends context lines of its own; the last one is the cause.
    return str(error).strip().splitlines()[-1].split(" Got: ReadInstruction")[0]
