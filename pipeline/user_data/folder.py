"""Images by class: which folders are splits, which are classes, and what is left out."""

from __future__ import annotations

import collections
import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Optional

from tfx_estimator.pipeline.base.errors import DataError, DataNotFoundError
from tfx_estimator.pipeline.base.files import open_regular
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.user_data import names
from tfx_estimator.pipeline.user_data.names import HEAD_BYTES, SUFFIXES, TRAIN, find_format, nfc, plain_role, role
from tfx_estimator.pipeline.user_data.reading import (
    IMAGES,
    Reading,
    find_classes,
    listed,
    refuse_classes,
    refuse_one_class,
)

_FORMS = (
    "a prepared TFDS data set (dataset_info.json and features.json, up to three levels below), "
    "IDX files (train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, ...; .gz or not), CIFAR "
    "binary batches (data_batch_1.bin, ..., test_batch.bin; or CIFAR-100's train.bin, test.bin), or images in a folder "
    "for each class (cat/1.png, dog/1.png), with folders of splits above them or without"
)
_HIDDEN, _NO_IMAGE, _NO_CLASS, _EMPTY = "hidden", "not an image", "in no folder of a class", "a folder without images"
# Names, by the folder that each is in, and relative to it; or by the reason.
_Groups = dict[str, list[str]]


def read_folder(folder: Any, declared: Collection[str] = ()) -> Reading:
    """Reads a folder (`pathlib.Path` or `epath.Path`) of images by class; opens only files without an image's suffix.

    Folders are those of splits if one of them, with folders of images in it, has the name of a split; else of classes.

    Args:
        declared: Names that are those of splits, whatever they are.
    """
    images: list[str] = []
    left_out: _Groups = {}
    _walk(folder, "", (os.path.realpath(folder),), images, left_out)
    top = _unwrapped(folder.name, "", images)
    # Beside classes, `test/*.png` has no labels; a class may well be named `train`, or `valid`.
    classes = {name: each for name, each in top[1].items() if plain_role(name) != "test" or _grouped(each)}
    whole = (top[0], classes) if len(classes) > 1 else top
    # Folders named as splits alone, with images themselves, are no classes.
    splits = _find_splits(top, declared) or ({} if all(map(plain_role, top[1])) else {TRAIN: whole})
    files: dict[str, _Groups] = {split: {} for split in splits}
    for split, (_, groups) in splits.items():
        for name, inner in groups.items():
            files[split].setdefault(nfc(name), []).extend(f"{name}/{image}" for image in inner)
    used = {splits[split][0] + image for split, each in files.items() for of in each.values() for image in of}
    tops = {image.partition("/")[0] for image in used}
    unused = (image for image in images if image not in used)
    counts = collections.Counter(first if (first := each.partition("/")[0]) not in tops else each for each in unused)
    if counts:
        left_out[_NO_CLASS] = [f"{name} ({count:,} images)" if count > 1 else name for name, count in counts.items()]
    return Reading(
        layout=IMAGES,
        place=folder,
        classes=find_classes(files),
        files=files,
        folders={split: folder / prefix if prefix else folder for split, (prefix, _) in splits.items()},
        left_out=left_out,
        refusal=_refuse(folder, left_out, top, files),
    )


def _walk(path: Any, name: str, above: tuple[str, ...], images: list[str], left_out: _Groups) -> None:
    """Collects the names of images below a folder, and of what is left out, by the reason."""
    for entry, is_folder in names.entries(path):
        inner, why, below, count = name + entry, "", _Groups(), len(images)
        if is_folder and names.is_visible(entry):
            # A symbolic link may lead back to an ancestor.
            if (real := os.path.realpath(path / entry)) not in above:
                _walk(path / entry, f"{inner}/", (*above, real), images, below)
            why = _EMPTY if len(images) == count else ""
        elif not names.is_visible(entry):
            why = "" if names.is_tool_file(entry) else _HIDDEN
        elif _is_image(path, entry):
            images.append(inner)
        else:
            why = _NO_IMAGE
        for reason, found in ({why: [inner]} if why else below).items():
            left_out.setdefault(reason, []).extend(found)


def _is_image(folder: Any, name: str) -> bool:
    """Returns whether a file has an image's suffix, even if damaged, or an image's first bytes."""
    if name.lower().endswith(SUFFIXES):
        return True
    if not names.is_file(folder / name):
        return False
    with open_regular(folder / name) as file:
        return bool(find_format(file.read(HEAD_BYTES)))


def _grouped(images: Iterable[str]) -> _Groups:
    found: _Groups = {}
    for first, slash, rest in (image.partition("/") for image in images):
        if slash:
            found.setdefault(first, []).append(rest)
    return found


def _unwrapped(name: str, prefix: str, images: list[str]) -> tuple[str, _Groups]:
    """Returns the images by folder, and where; a folder in one of the same name is all there is, as in archives."""
    found = _grouped(images)
    if list(found) == [name] and _grouped(found[name]):
        return _unwrapped(name, f"{prefix}{name}/", found[name])
    return prefix, found


def _find_splits(top: tuple[str, _Groups], declared: Collection[str]) -> dict[str, tuple[str, _Groups]]:
    """Returns the place of each split, and its images by class; none if these are folders of classes."""
    # TFDS's expressions take no other names.
    deep = {
        re.sub(r"[^\w-]+", "_", name): _unwrapped(name, f"{top[0]}{name}/", images)
        for name, images in top[1].items()
        if _grouped(images)
    }
    classes = {name: set(map(nfc, each[1])) for name, each in deep.items()}
    named = [name for name in deep if name in declared or role(name)]
    trained: set[str] = set().union(*(classes[name] for name in named if role(name) in ("", TRAIN)))
    # A test split without labels is often in a folder of its own, as `test/unknown`.
    named = [name for name in named if not trained or trained & classes[name]]
    # `train_station` is a split's name only beside `test_...`, with the same classes.
    if not any(name in declared or plain_role(name) for name in named) and len(set(map(role, named))) < 2:
        return {}
    return {name: each for name, each in deep.items() if name in named or classes[name] <= trained}


def _refuse(
    folder: Any, left_out: _Groups, top: tuple[str, _Groups], files: Mapping[str, _Groups]
) -> Optional[DataError]:
    """Returns why this is no data set to train with."""
    classes = find_classes(files)
    if len(classes) == 1 and len(_grouped(top[1].get(classes[0], ()))) > 1:
        return refuse_one_class(folder, classes, f"set data.dataset to {folder / top[0] / classes[0]}")
    if classes:
        return refuse_classes(files, folder)
    held = [name for each in left_out.values() for name in each]
    return DataNotFoundError(
        one_line(f"the folder {folder} has no data set in a known format; it holds {listed(held) or 'nothing'}"),
        expected="a folder for each class, or a table" if _NO_CLASS in left_out else _FORMS,
        todo="change data.dataset to the folder that holds such files; put each image into the folder of its class, or "
        "name their classes in a CSV or Parquet file: image,label",
    )
