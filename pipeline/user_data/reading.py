"""What lies in a folder or table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from tfx_estimator.pipeline.base.errors import DataError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.user_data.names import READ, TRAIN, find_format, role, sort_classes

# Layouts.
IMAGES = "images by class"
TABLE = "table of images"
IDX = "IDX files"
CIFAR = "CIFAR binary batches"
TFDS = "prepared TFDS data set"


@dataclass(frozen=True)
class Reading:
    """What lies in a folder or table, as far as it was looked at.

    Args:
        layout: One of the layouts above.
        place: The folder or table.
        classes: In the order of their labels.
        files: Split -> class -> names of images, relative to the split's folder.
        folders: Split -> its folder.
        left_out: Why -> names of files and folders that are not read, other than those of tools.
        refusal: Why no source can read it.
    """

    layout: str
    place: Any
    classes: Sequence[str] = ()
    files: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    folders: Mapping[str, Any] = field(default_factory=dict)
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)
    refusal: Optional[DataError] = None

    def notes(self) -> Iterator[str]:
        """Yields what is left out and why, classes that a split lacks, and files in formats that are not read."""
        for why, found in sorted(self.left_out.items()):
            yield f"left out ({why}): {listed(found)} of {self.place}"
        for split, held in self.files.items():
            if held and (lacking := [name for name in self.classes if name not in held]):
                yield f"the split {split} of {self.place} has no image of {listed(lacking)}"
        names = (name for held in self.files.values() for each in held.values() for name in each)
        for suffix, count in Counter(name.rpartition(".")[2].lower() for name in names).items():
            if (form := find_format(b"", suffix)) not in ("", *READ):
                yield f"{form} is not read, the format of files in {self.place}, by their names: {count:,}"


def listed(names: Sequence[str], most: int = 8) -> str:
    """Returns the first names, and how many more there are."""
    return one_line(", ".join(names[:most]) + (f", and {len(names) - most:,} more" if names[most:] else ""))


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
