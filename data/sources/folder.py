"""Recognises what a folder holds, and reads the names of classes in it."""

from __future__ import annotations

from typing import Any

from tfx_estimator.data.sources.damage import damaged, reading
from tfx_estimator.data.sources.source import ImageSource
from tfx_estimator.pipeline.base.errors import DataNotFoundError
from tfx_estimator.pipeline.config.data import DataSection
from tfx_estimator.pipeline.config.image_folder import in_form


def is_folder(path: str) -> bool:
    """Returns whether there is such a folder."""
    return _path(path).is_dir()


def open_folder(section: DataSection) -> ImageSource:
    """Returns the source for the folder `section.dataset`.

    Raises:
        DataNotFoundError: there is no such folder, or none of the known forms is in it.
        DataError: what is in it cannot be read, or contradicts itself.
    """
    folder = _path(section.dataset)
    with reading(folder, "change its permissions"):
        return _open_folder(section, folder)


def _open_folder(section: DataSection, folder: Any) -> ImageSource:
    if not folder.is_dir():
        raise DataNotFoundError(
            f"no folder {folder}",
            expected="a folder of a prepared TFDS data set, IDX files, CIFAR binary batches, or images by class",
            todo="change data.dataset",
        )
    from tfx_estimator.data.sources.tfds_lookup import find_in_folder

    found = find_in_folder(section, folder)
    if found is not None:
        from tfx_estimator.data.sources.tfds_source import TfdsSource

        return TfdsSource(section, found)
    from tfx_estimator.data.sources import cifar, idx, image_folder

    for kind in (idx.IdxSource, cifar.CifarBinarySource, image_folder.ImageFolderSource):
        if kind.recognises(folder):
            _refuse_version(section)
            return kind(section, folder)
    names = sorted(path.name for path in folder.iterdir())
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    raise DataNotFoundError(
        f"the folder {folder} holds no data set of a known form, but {shown or 'nothing'}",
        expected="a prepared TFDS data set (dataset_info.json and features.json, up to three levels below), "
        f"{idx.FORM}, {cifar.FORM}, or {image_folder.FORM}",
        todo="change data.dataset to the folder that holds such files, or to a CSV or Parquet file of paths and labels",
    )


def open_table(section: DataSection) -> ImageSource:
    """Returns the source for the CSV or Parquet file `section.dataset`.

    Raises:
        DataError: there is no such file, or it cannot be used: see ImageTableSource.
    """
    from tfx_estimator.data.sources.image_table import ImageTableSource

    _refuse_version(section)
    table = _path(section.dataset)
    with reading(table, "change the permissions of its folder"):
        return ImageTableSource(section, table)


def _refuse_version(section: DataSection) -> None:
    if section.version:
        raise DataNotFoundError(
            f"no version {section.version!r} of {section.dataset}: its files carry none",
            expected="files, with no data.version",
            todo="leave data.version out; changed files are seen by their contents",
        )


def _path(path: str) -> Any:
    from etils import epath

    return epath.Path(path).expanduser()


def read_names(path: Any) -> list[str]:
    """Returns the classes that a file (`epath.Path`) names.

    Args:
        path: Of the file; empty lines and the mark that editors begin UTF-8 with are none of it.

    Raises:
        DamagedDataError: It is no text, or names a class twice.
    """
    with reading(path):
        lines = path.read_text().removeprefix("\ufeff").split("\n")
    names = [in_form(line.strip()) for line in lines if line.strip()]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise damaged(path, f"it names {twice!r} more than once", "each class once", "correct the file")
    return names
