"""A folder of images by class: `cat/1.png, dog/1.png`, or `train/cat/1.png, test/cat/2.png`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfx_estimator.data.sources.image_files import ImageFile, ImageFilesSource
from tfx_estimator.pipeline.config.data import DataSection
from tfx_estimator.pipeline.config.image_folder import SUFFIXES, TRAIN, counts, folders, is_image, split_folders
from tfx_estimator.pipeline.errors import DataError
from tfx_estimator.pipeline.text import one_line

FORM = "PNG or JPEG files in a folder for each class (cat/1.png, dog/1.png), with splits above them or without"
# Images, but of forms that are not read: to leave one out without a word would be a loss.
_OTHER_IMAGES = (".gif", ".bmp", ".webp", ".tif", ".tiff", ".heic", ".avif", ".ppm", ".pgm", ".svg")
_SPLIT_NAME = re.compile(r"[\w-]+\Z")


class ImageFolderSource(ImageFilesSource):
    """The classes are the folders' names, in alphabetical order.

    Args:
        section: the declaration's `data` section.
        folder: `epath.Path`.

    Raises:
        DataError: a folder or file stands where it cannot be taken for a class or an image.
    """

    def __init__(self, section: DataSection, folder: Any) -> None:
        places = split_folders(folder)
        for place in dict.fromkeys([folder, *places.values()]):
            _refuse_strays(place)
        classes = {split: _classes(place) for split, place in places.items()}
        check_split_names(classes, folder)
        names = label_names({split: list(found) for split, found in classes.items()}, folder)
        labels = {name: label for label, name in enumerate(names)}
        splits = {
            split: [
                ImageFile(path, f"{split}/{name}/{path.name}", labels[name])
                for name, paths in found.items()
                for path in paths
            ]
            for split, found in classes.items()
        }
        super().__init__(section, folder.resolve().name, names, splits)

    @staticmethod
    def recognises(folder: Any) -> bool:
        """Returns whether a folder (`epath.Path`) holds images by class."""
        return bool(split_folders(folder))


def label_names(found: Mapping[str, Sequence[str]], where: Any) -> list[str]:
    """Returns the classes of a data set, in alphabetical order.

    Args:
        found: the classes that occur in each split.
        where: the folder or file that they come from, for messages.

    Raises:
        DataError: another split has a class that `train` has not; or there is one class only.
    """
    names = sorted({name for each in found.values() for name in each})
    for split, each in found.items():
        if TRAIN in found and (unknown := sorted(set(each) - set(found[TRAIN]))):
            raise DataError(
                f"split {split!r} of {one_line(str(where))} has the class {unknown[0]!r}, which {TRAIN!r} has not",
                expected=f"classes that occur in {TRAIN!r}: {', '.join(sorted(found[TRAIN]))}",
                todo="correct the class's name, or give it images to train on",
            )
    if len(names) < 2:
        raise DataError(
            one_line(f"{where} has one class only: {', '.join(names)}"),
            expected="two classes or more",
            todo="add the others",
        )
    return names


def check_split_names(names: Mapping[str, Any], where: Any) -> None:
    """Refuses names that no split expression can hold.

    Raises:
        DataError: there is one.
    """
    for name in names:
        if not _SPLIT_NAME.match(name) or name == "all":
            raise DataError(
                f"{one_line(str(where))} has a split named {name!r}",
                expected="letters, digits, `_` and `-`, and not `all`",
                todo="rename it",
            )


def _refuse_strays(folder: Any) -> None:
    """An image beside the folders is of no class: to leave it out without a word would be a loss."""
    endings = (*SUFFIXES, *_OTHER_IMAGES)
    names = sorted(path.name for path in folder.iterdir() if path.name.lower().endswith(endings) and counts(path.name))
    if names:
        others = f", and {len(names) - 1:,} more like it" if names[1:] else ""
        raise DataError(
            one_line(f"{folder / names[0]} lies beside the folders and in that of no class{others}"),
            expected="every image in the folder of its class",
            todo="move it there, or out of the data set",
        )


def _classes(folder: Any) -> dict[str, list[Any]]:
    """Returns the images of each class, by name."""
    found = {child.name: list(_images(child)) for child in folders(folder)}
    for name, images in found.items():
        if not images:
            raise DataError(
                one_line(f"the folder {folder / name} holds no images"),
                expected="PNG or JPEG files in the folder of each class",
                todo="put the images of this class there, or remove the folder",
            )
    return found


def _images(folder: Any) -> Iterator[Any]:
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if not counts(path.name):
            continue
        if is_image(path.name):
            yield path
        elif path.name.lower().endswith(_OTHER_IMAGES) or path.is_dir():
            raise DataError(
                one_line(f"{path} lies in the folder of a class, and is no PNG or JPEG file"),
                expected="the images of a class, as PNG or JPEG, in its folder itself",
                todo="convert or move it, or remove it",
            )
