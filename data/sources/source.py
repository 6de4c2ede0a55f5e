"""The interface of sources of labelled images."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tfx_estimator.data.sources.splits import reject_overlap, resolve_split
from tfx_estimator.pipeline.config.data import DataSection
from tfx_estimator.pipeline.user_data.reading import refuse_one_class

if TYPE_CHECKING:
    import numpy as np

    from tfx_estimator.data.sources.splits import ExampleRange


@dataclasses.dataclass(frozen=True)
class SourceInfo:
    """Describes a data set, before any example is read.

    Args:
        name: the data set, with its TFDS config if it has one.
        version: TFDS version, or "" for files.
        image_shape: (height, width, channels) of every image as it is read.
        label_names: one name per class; a label is an index into them.
        citation: BibTeX, or "".
    """

    name: str
    version: str
    image_shape: tuple[int, int, int]
    label_names: tuple[str, ...]
    licence: str = ""
    citation: str = ""
    description: str = ""

    def __post_init__(self) -> None:
        if len(self.label_names) < 2:
            raise refuse_one_class(self.name, self.label_names)

    @property
    def num_classes(self) -> int:
        """The number of classes; labels are 0 to this, exclusive."""
        return len(self.label_names)

    @property
    def image_bytes(self) -> int:
        """The length of one image as raw uint8 bytes."""
        height, width, channels = self.image_shape
        return height * width * channels


class ImageSource(abc.ABC):
    """A data set of uint8 images with one class label each.

    It is picklable: another process reopens it from its section.
    """

    def __init__(self, section: DataSection) -> None:
        self.section = section

    def __reduce__(self) -> tuple:
        from tfx_estimator.data.sources.open import open_source

        return (open_source, (self.section,))

    @property
    @abc.abstractmethod
    def info(self) -> SourceInfo:
        """The description of the data set; needs no examples."""

    @property
    @abc.abstractmethod
    def is_prepared(self) -> bool:
        """True if the examples are readable now."""

    def check_available(self) -> None:
        """Checks, within seconds, that the data set exists, or that `prepare` can start.

        Raises:
            DataError: The data set, or a split of it, is not available.
        """
        _ = self.info

    @abc.abstractmethod
    def prepare(self) -> None:
        """Makes the examples readable: downloads and converts them if needed."""

    def notes(self, expressions: Sequence[str] = ()) -> tuple[str, ...]:
        """Returns warnings about the examples, and those of these split expressions in particular."""
        return ()

    @abc.abstractmethod
    def shard_lengths(self) -> dict[str, tuple[int, ...]]:
        """Returns the number of examples in each file of each split."""

    def count_classes(self) -> dict[str, Mapping[int, int]]:
        """Returns the number of examples with each label in each split; empty if only a preparation would tell."""
        return {}

    def resolve(self, expression: str) -> tuple[ExampleRange, ...]:
        """Returns the example ranges of a TFDS split expression, in order.

        Args:
            expression: for example `train[:90%]` or `train+test`.

        Raises:
            DataNotFoundError: no such split, no such slice, or an empty one.
        """
        return resolve_split(self.info.name, self.shard_lengths(), expression)

    def resolve_disjoint(self) -> dict[str, tuple[ExampleRange, ...]]:
        """Returns the example ranges of each declared split; no two share an example.

        Raises:
            DataNotFoundError: see `resolve`.
            DataError: some examples are in two splits.
        """
        declared = self.section.splits.declared()
        ranges = {name: self.resolve(expression) for name, expression in declared.items()}
        reject_overlap(self.info.name, declared, ranges)
        return ranges

    @abc.abstractmethod
    def read(self, examples: ExampleRange) -> Iterator[tuple[np.ndarray, int]]:
        """Yields the image (uint8, `info.image_shape`) and the label of each example of a range, in stored order.

        Raises:
            DamagedDataError: a file is truncated, corrupt, or does not match its header.
        """

    @abc.abstractmethod
    def fingerprint(self, expressions: Sequence[str]) -> str:
        """Returns a hash that changes when the examples of these split expressions may have changed."""
