"""What lies in a folder or table."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from tfx_estimator.pipeline.base.errors import DataError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.user_data.names import TRAIN, role, sort_classes

# Layouts.
IMAGES = "images by class"
TABLE = "table of images"
IDX = "IDX files"
CIFAR = "CIFAR binary batches"
TFDS = "prepared TFDS data set"
# Why something is left out.
OF_TOOL = "of a tool"
_SHOWN = 8


@dataclass(frozen=True)
class LeftOut:
    """A file or folder that is not read: its name in the data set, and how many images are in it."""

    name: str
    why: str
    images: int = 0

    def __str__(self) -> str:
        return f"{self.name} ({self.images:,} images)" if self.images > 1 else self.name


@dataclass(frozen=True)
class Reading:
    """What lies in a folder or table, as far as it was looked at.

    Args:
        layout: One of the layouts above.
        place: The folder or table.
        classes: In the order of their labels.
        files: Split -> class -> names of images, relative to the split's folder.
        folders: Split -> its folder.
        left_out: What is not read, and why.
        refusal: Why no source can read it.
    """

    layout: str
    place: Any
    classes: Sequence[str] = ()
    files: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    folders: Mapping[str, Any] = field(default_factory=dict)
    left_out: Sequence[LeftOut] = ()
    refusal: Optional[DataError] = None

    @property
    def splits(self) -> list[str]:
        """The names of the splits."""
        return list(self.files)

    def notes(self) -> Iterator[str]:
        """Yields what is left out, unless a tool has left it there."""
        for why, group in itertools.groupby(sorted(self.left_out, key=lambda each: each.why), lambda each: each.why):
            names = list(map(str, group))
            more = f", and {len(names) - _SHOWN:,} more" if names[_SHOWN:] else ""
            if why != OF_TOOL:
                yield f"left out ({why}): {', '.join(names[:_SHOWN])}{more} of {self.place}"


def find_classes(found: Mapping[str, Any]) -> list[str]:
    """Returns the classes of all splits, each a collection of classes, in the order of their labels."""
    return sort_classes(name for each in found.values() for name in each)


def refuse_one_class(place: Any, classes: Sequence[str], todo: str = "add the others") -> DataError:
    """Returns the error for a single class, which any model predicts."""
    what = one_line(f"{place} has one class only: {', '.join(classes)}")
    return DataError(what, expected="two classes or more", todo=todo)


def refuse_classes(found: Mapping[str, Collection[str]], place: Any) -> Optional[DataError]:
    """Returns why nothing can be trained on the classes of these splits; None if it can."""
    if len(classes := find_classes(found)) < 2:
        return refuse_one_class(place, classes)
    trained = find_classes({split: each for split, each in found.items() if role(split) == TRAIN})
    for split, each in found.items():
        if trained and (unknown := sorted(set(each) - set(trained))):
            return DataError(
                one_line(f"split {split!r} of {place} has the class {unknown[0]!r}, but {TRAIN!r} does not"),
                expected=f"classes that occur in {TRAIN!r}: {', '.join(trained)}",
                todo="correct the class's name, or add training images of it",
            )
    return None
