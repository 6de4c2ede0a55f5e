"""Finds the source that a `data` section names."""

from __future__ import annotations

import os
import re
import sys

from tfx_estimator.data.sources.source import ImageSource
from tfx_estimator.pipeline.base.errors import DataError, DataNotFoundError
from tfx_estimator.pipeline.config.data import DataSection
from tfx_estimator.pipeline.config.paths import is_path, is_table

_BUILDER_CLASS = re.compile(r"^[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*$")


def open_source(section: DataSection) -> ImageSource:
    """Returns the source that `section.dataset` names, without downloading or preparing anything.

    A name that ends in `.csv` or `.parquet` is a table of images. Another path is a folder, recognised by its contents;
    so is what may be a TFDS name with its config, `name/config`, where there is such a folder. `package.module:Class`
    is a TFDS builder class; anything else is a TFDS name, or else a folder of that name.

    Args:
        section: the declaration's `data` section.

    Raises:
        DataNotFoundError: there is no such data set, folder, class or version.
        DataError: an object store does not answer, or not to this account.
    """
    try:
        return _open(section)
    except Exception as error:
        # Who asks a store has loaded TensorFlow; the others need not.
        tensorflow = sys.modules.get("tensorflow")
        if tensorflow is None or not isinstance(error, tensorflow.errors.OpError):
            raise
        place = section.dataset if section.data_dir is None else f"{section.dataset} in {section.data_dir}"
        raise DataError(
            f"the data set {place} cannot be looked at: {error.message}",
            expected="a folder, or a bucket, that is there, and that this account may read",
            todo="see that it is, and `gcloud auth application-default login`; then try again",
        ) from error


def _open(section: DataSection) -> ImageSource:
    # Only the source that is used is imported: TensorFlow Datasets is not needed for IDX files.
    dataset = section.dataset
    if is_table(dataset):
        from tfx_estimator.data.sources.folder import open_table

        return open_table(section)
    if is_path(dataset) or (os.sep in dataset and os.path.isdir(dataset)):
        from tfx_estimator.data.sources.folder import open_folder

        return open_folder(section)
    from tfx_estimator.data.sources.tfds_lookup import find_by_class, find_by_name
    from tfx_estimator.data.sources.tfds_source import TfdsSource

    if _BUILDER_CLASS.match(dataset):
        return TfdsSource(section, find_by_class(section))
    try:
        return TfdsSource(section, find_by_name(section))
    except DataNotFoundError:
        from tfx_estimator.data.sources.folder import is_folder, open_folder

        if is_folder(dataset):
            return open_folder(section)
        raise
