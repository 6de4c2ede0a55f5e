"""Opens the source of a `data` section: by the name of a data set, or by the contents of a folder."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from tfx_estimator.data.sources.files import reading
from tfx_estimator.data.sources.source import ImageSource
from tfx_estimator.pipeline.base.errors import DataError, DataNotFoundError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.data import DataSection
from tfx_estimator.pipeline.config.paths import is_path, is_table
from tfx_estimator.pipeline.user_data.read import find_layout
from tfx_estimator.pipeline.user_data.reading import CIFAR, IDX, TFDS

_BUILDER_CLASS = re.compile(r"^[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*$")


def open_source(section: DataSection) -> ImageSource:
    """Returns the source that `section.dataset` names, without downloading or preparing anything.

    A name that ends in `.csv` or `.parquet` is a table of images. Another path is a folder, recognised by its contents;
    so is `name/config`, which may be a TFDS name with its config, if such a folder exists. `package.module:Class` is a
    TFDS builder class; anything else is a TFDS name, or else a folder of that name.

    Args:
        section: the declaration's `data` section.

    Raises:
        DataNotFoundError: there is no such data set, folder, class or version.
        DataError: an object store does not answer, or denies access.
    """
    if section.is_table:
        raise DataError(
            one_line(f"this reads images, and {section.table_path} is a table of features"),
            expected="data.dataset",
            todo="use `run`, `validate --deep` or `predict`, which take tables",
        )
    try:
        return _open(section)
    except Exception as error:
        # Without importing TensorFlow: an access to a store has imported it.
        tensorflow = sys.modules.get("tensorflow")
        if tensorflow is None or not isinstance(error, tensorflow.errors.OpError):
            raise
        place = section.dataset if section.data_dir is None else f"{section.dataset} in {section.data_dir}"
        raise DataError(
            f"the data set {place} cannot be accessed: {error.message}",
            expected="an existing folder or bucket that this account may read",
            todo="check its address and permissions, run `gcloud auth application-default login`, and try again",
        ) from error


def _open(section: DataSection) -> ImageSource:
    dataset = section.dataset
    if is_path(dataset) or (os.sep in dataset and os.path.isdir(dataset)):
        return _open_path(section)
    from tfx_estimator.data.sources.tfds_lookup import find_by_class, find_by_name
    from tfx_estimator.data.sources.tfds_source import TfdsSource

    if _BUILDER_CLASS.match(dataset):
        return TfdsSource(section, find_by_class(section))
    try:
        return TfdsSource(section, find_by_name(section))
    except DataNotFoundError:
        if _path(dataset).is_dir():
            return _open_path(section)
        raise


def _open_path(section: DataSection) -> ImageSource:
    # Imports only the source in use: IDX files do not need TensorFlow Datasets.
    path, table = _path(section.dataset), is_table(section.dataset)
    with reading(path, "change its permissions, or those of its folder"):
        if not (path.is_file() if table else path.is_dir()):
            raise DataNotFoundError(
                one_line(f"no {'file' if table else 'folder'} {path}"),
                expected="a CSV or Parquet file, or a folder of a prepared TFDS data set, IDX files, CIFAR binary "
                "batches, or images by class",
                todo="change data.dataset",
            )
        if table:
            from tfx_estimator.data.sources.image_table import ImageTableSource

            return ImageTableSource(section, path)
        layout = find_layout(path)
        if layout == TFDS:
            from tfx_estimator.data.sources.tfds_lookup import find_in_folder
            from tfx_estimator.data.sources.tfds_source import TfdsSource

            return TfdsSource(section, find_in_folder(section, path))
        from tfx_estimator.data.sources import cifar, idx, image_files

        kinds = {IDX: idx.IdxSource, CIFAR: cifar.CifarBinarySource}
        return kinds.get(layout, image_files.ImageFolderSource)(section, path)


def _path(path: str) -> Any:
    from etils import epath

    return epath.Path(path).expanduser()
