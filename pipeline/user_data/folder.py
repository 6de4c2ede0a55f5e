"""Images by class: which folders are splits, which are classes, and what is left out."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Optional

from tfx_estimator.pipeline.base.errors import DataError, DataNotFoundError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.user_data import names
from tfx_estimator.pipeline.user_data.formats import SUFFIXES
from tfx_estimator.pipeline.user_data.names import TRAIN, is_split, nfc, role
from tfx_estimator.pipeline.user_data.reading import (
    IMAGES,
    OF_TOOL,
    LeftOut,
    Reading,
    find_classes,
    refuse_classes,
    refuse_one_class,
)

_FORM = "images in a folder for each class (cat/1.png, dog/1.png), with folders of splits above them or without"
FORMS = (
    "IDX files (train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, ...; .gz or not), CIFAR "
    f"binary batches (data_batch_1.bin, ..., test_batch.bin; or CIFAR-100's train.bin, test.bin), or {_FORM}"
)
_SHOWN = 8
_HIDDEN, _NO_IMAGE, _NO_CLASS = "hidden", "no image", "in no folder of a class"
_EMPTY, _OTHER_CLASSES = "without an image", "with other folders than those of classes"


def read_folder(folder: Any, declared: Collection[str] = ()) -> Reading:
    """Reads a folder (`pathlib.Path` or `epath.Path`) of images by class; lists it, and opens no image by its name.

    Folders are those of splits if one of them, with folders of images in it, has the name of a split; else of classes.

    Args:
        declared: Names that are those of splits, whatever they are.
    """
    root = _walk(folder, "", (os.path.realpath(folder),), {})
    splits = _find_splits(root, declared)
    files = {split: dict(_by_class(each)) for split, each in splits.items()}
    classes = find_classes(files)
    return Reading(
        layout=IMAGES,
        place=folder,
        classes=classes,
        files=files,
        folders={split: each.path for split, each in splits.items()},
        left_out=tuple(_left_out(root, list(splits.values()))),
        refusal=_refuse(root, files, classes),
    )


@dataclasses.dataclass(eq=False)
class _Folder:
    """A folder: its images and folders with images; names end in a slash, and are relative to the data set."""

    path: Any
    name: str
    images: list[str] = dataclasses.field(default_factory=list)
    folders: dict[str, _Folder] = dataclasses.field(default_factory=dict)
    left_out: list[LeftOut] = dataclasses.field(default_factory=list)

    @functools.cached_property
    def all_images(self) -> list[str]:
        return [*self.images, *(image for each in self.folders.values() for image in each.all_images)]

    @functools.cached_property
    def all_left_out(self) -> list[LeftOut]:
        return [*self.left_out, *(left for each in self.folders.values() for left in each.all_left_out)]

    @property
    def classes(self) -> set[str]:
        return set(map(nfc, self.folders))

    def unwrapped(self) -> _Folder:
        """Returns the folder of the same name in this one if that is all there is, as archives are unpacked."""
        last = self.path.name
        inner = self.folders.get(last)
        return inner.unwrapped() if inner and inner.folders and list(self.folders) == [last] else self


def _walk(path: Any, name: str, above: tuple[str, ...], by_suffix: dict[str, bool]) -> _Folder:
    found = _Folder(path, name)
    for entry, is_folder in _entries(path):
        inner = name + entry
        if names.is_tool_file(entry):
            found.left_out.append(LeftOut(inner, OF_TOOL))
        elif not names.is_visible(entry):
            found.left_out.append(LeftOut(inner, _HIDDEN))
        elif is_folder:
            # A symbolic link may lead back to an ancestor.
            real = os.path.realpath(path / entry)
            below = _walk(path / entry, f"{inner}/", (*above, real), by_suffix) if real not in above else None
            if below and below.all_images:
                found.folders[entry] = below
            else:
                found.left_out.append(LeftOut(inner, _EMPTY))
        elif _is_image(path, entry, by_suffix):
            found.images.append(inner)
        else:
            found.left_out.append(LeftOut(inner, _NO_IMAGE))
    return found


def _entries(folder: Any) -> Iterator[tuple[str, bool]]:
    """Yields the names in a folder, in order, and whether each is a folder's."""
    if names.is_address(str(folder)):
        for path in sorted(folder.iterdir()):
            # Each question to a store takes as long as many answers of a disk.
            yield path.name, not path.name.lower().endswith(SUFFIXES) and path.is_dir()
        return
    with os.scandir(folder) as entries:
        yield from sorted((entry.name, names.is_folder(entry)) for entry in entries)


def _is_image(folder: Any, name: str, by_suffix: dict[str, bool]) -> bool:
    """Returns whether a file is an image, readable or not; of an unknown suffix one file is opened."""
    suffix = os.path.splitext(name)[1].lower()
    if suffix in SUFFIXES:
        return True
    if not re.fullmatch(r"[.]\w*[a-z]\w*", suffix):
        return names.is_image(folder / name)
    if suffix not in by_suffix:
        by_suffix[suffix] = names.is_image(folder / name)
    return by_suffix[suffix]


def _find_splits(root: _Folder, declared: Collection[str]) -> dict[str, _Folder]:
    """Returns the folder of each split; that of all if its folders are classes."""
    root = root.unwrapped()
    # TFDS's expressions take no other names.
    deep = {re.sub(r"[^\w-]+", "_", each.path.name): each.unwrapped() for each in root.folders.values() if each.folders}
    named = [name for name in deep if name in declared or role(name)]
    trained: set[str] = set().union(*(deep[name].classes for name in named if role(name) in ("", TRAIN)))
    # A test split without labels is often in a folder of its own, as `test/unknown`.
    named = [name for name in named if not trained or deep[name].classes & trained]
    # `train_station` is a split's name only beside `test_...`, with the same classes.
    if not any(name in declared or is_split(name) for name in named) and len(set(map(role, named))) < 2:
        return {TRAIN: root}
    return {name: each for name, each in deep.items() if name in named or each.classes <= trained}


def _by_class(split: _Folder) -> Iterator[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    for name, each in split.folders.items():
        found.setdefault(nfc(name), []).extend(image[len(split.name) :] for image in each.all_images)
    yield from found.items()


def _left_out(root: _Folder, splits: list[_Folder]) -> Iterator[LeftOut]:
    """Yields what is in no folder of a class of these splits."""
    if root in splits:
        yield from root.all_left_out
        yield from (LeftOut(image, _NO_CLASS) for image in root.images)
        return
    yield from root.left_out
    yield from (LeftOut(image, _NO_CLASS) for image in root.images)
    for each in root.folders.values():
        if any(split.name.startswith(each.name) for split in splits):
            yield from _left_out(each, splits)
        else:
            why = _OTHER_CLASSES if each.folders else _NO_CLASS
            yield LeftOut(each.name.rstrip("/"), why, len(each.all_images))


def _refuse(root: _Folder, files: Mapping[str, Mapping[str, list[str]]], classes: list[str]) -> Optional[DataError]:
    """Returns why this is no data set to train with."""
    place = one_line(str(root.path))
    if not root.all_images:
        held = [each.name for each in root.left_out if each.why != OF_TOOL]
        shown = one_line(", ".join(held[:_SHOWN])) + (", ..." if held[_SHOWN:] else "")
        return DataNotFoundError(
            f"the folder {place} has no data set in a known format; it holds {shown or 'nothing'}",
            expected=f"a prepared TFDS data set (dataset_info.json and features.json, up to three levels below), "
            f"{FORMS}",
            todo="change data.dataset to the folder that holds such files, or to a CSV or Parquet file of paths and "
            "labels",
        )
    if not classes:
        return DataError(
            f"the images of {place} lie in no folder of a class",
            expected=_FORM,
            todo="move each image into the folder of its class, or name their classes in a CSV: image,label",
        )
    inner = root.unwrapped().folders.get(classes[0])
    if len(classes) == 1 and inner and len(inner.folders) > 1:
        return refuse_one_class(root.path, classes, f"set data.dataset to {one_line(str(inner.path))}")
    return refuse_classes(files, root.path)
