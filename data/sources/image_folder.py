"""A folder of images by class: `cat/1.png, dog/1.png`, or `train/cat/1.png, test/cat/2.png`."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tfx_estimator.data.sources.image_files import ImageFile, ImageFilesSource
from tfx_estimator.pipeline.base.errors import DataError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.data import DataSection
from tfx_estimator.pipeline.config.image_folder import (
    OTHER_IMAGES,
    TRAIN,
    children,
    folders,
    is_file,
    is_image,
    is_tool_file,
    is_visible,
    nfc,
    sort_classes,
    split_folders,
)

FORM = "PNG or JPEG files in a folder for each class (cat/1.png, dog/1.png), with splits above them or without"
_SHOWN = 8


class ImageFolderSource(ImageFilesSource):
    """The classes are the folders' names, in alphabetical order, or in numerical order if all are numbers."""

    def __init__(self, section: DataSection, folder: Any) -> None:
        places = split_folders(folder)
        named = {split: list(folders(place)) for split, place in places.items()}
        self._folder = folder
        self._left_out = _others([folder, *places.values()], {*places.values(), *itertools.chain(*named.values())})
        classes = {split: {child.name: self._images(child) for child in each} for split, each in named.items()}
        names = label_names({split: list(found) for split, found in classes.items()}, folder)
        labels = {name: label for label, name in enumerate(names)}
        splits = {
            split: [
                ImageFile(path, f"{split}/{name}/{path.name}", labels[nfc(name)])
                for name, paths in found.items()
                for path in paths
            ]
            for split, found in classes.items()
        }
        super().__init__(section, folder.resolve().name, names, splits)

    def notes(self) -> tuple[str, ...]:
        """See ImageSource."""
        if not self._left_out:
            return ()
        names = [str(path.relative_to(self._folder)) for path in self._left_out]
        more = f", and {len(names) - _SHOWN:,} more" if names[_SHOWN:] else ""
        shown = one_line(f"{', '.join(names[:_SHOWN])}{more} of {self._folder}")
        return (f"left out, as they are hidden, or not PNG or JPEG files in the folder of a class: {shown}",)

    @staticmethod
    def recognises(folder: Any) -> bool:
        """Returns True if a folder (`epath.Path`) holds images by class."""
        return bool(split_folders(folder))

    def _images(self, folder: Any) -> list[Any]:
        """Returns the images of a class."""
        found = []
        for path in children(folder):
            if is_tool_file(path.name):
                continue
            if not is_visible(path.name):
                self._left_out.append(path)
            elif is_image(path):
                found.append(path)
            elif _is_other_image(path) or (path.exists() and not is_file(path)):
                raise DataError(
                    one_line(f"{path} is in the folder of a class, but is not a PNG or JPEG file"),
                    expected="the images of a class, as PNG or JPEG, in its folder itself",
                    todo="convert or move it, or remove it",
                )
            else:
                self._left_out.append(path)
        if not found:
            raise DataError(
                one_line(f"the folder {folder} has no images"),
                expected="PNG or JPEG files in the folder of each class",
                todo="put the images of this class there, or remove the folder",
            )
        return found


def label_names(found: Mapping[str, Sequence[str]], where: Any) -> list[str]:
    """Returns the classes of a data set in the order of their labels, from the classes in each split."""
    names = sort_classes(name for each in found.values() for name in each)
    found = {split: sort_classes(each) for split, each in found.items()}
    for split, each in found.items():
        if TRAIN in found and (unknown := sorted(set(each) - set(found[TRAIN]))):
            raise DataError(
                f"split {split!r} of {one_line(str(where))} has the class {unknown[0]!r}, but {TRAIN!r} does not",
                expected=f"classes that occur in {TRAIN!r}: {', '.join(found[TRAIN])}",
                todo="correct the class's name, or add training images of it",
            )
    return require_several(names, where)


def require_several(names: Sequence[str], where: Any) -> list[str]:
    """Returns the classes of a data set; raises an error for a single one, which any model predicts."""
    if len(names) < 2:
        raise DataError(
            one_line(f"{where} has one class only: {', '.join(names)}"),
            expected="two classes or more",
            todo="add the others",
        )
    return list(names)


def _others(places: Sequence[Any], used: Collection[Any]) -> list[Any]:
    """Returns the files next to the folders of splits and classes; raises an error for an image, which has no class."""
    paths = sorted({path for place in places for path in children(place)}.difference(used))
    paths = [path for path in paths if not is_tool_file(path.name)]
    strays = [path for path in paths if is_visible(path.name) and (_is_other_image(path) or is_image(path))]
    if strays:
        others = f", and {len(strays) - 1:,} more like it" if strays[1:] else ""
        raise DataError(
            one_line(f"{strays[0]} is next to the folders of the classes, not in one of them{others}"),
            expected="every image in the folder of its class",
            todo="move it there, or out of the data set",
        )
    return paths


def _is_other_image(path: Any) -> bool:
    return path.name.lower().endswith(OTHER_IMAGES)
