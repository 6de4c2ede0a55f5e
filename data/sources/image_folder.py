"""A folder of images by class: `cat/1.png, dog/1.png`, or `train/cat/1.png, test/cat/2.png`."""

from __future__ import annotations

from typing import Any

from tfx_estimator.data.sources.image_files import ImageFile, ImageFilesSource
from tfx_estimator.pipeline.config.data import DataSection
from tfx_estimator.pipeline.user_data.folder import read_folder


class ImageFolderSource(ImageFilesSource):
    """The classes are the folders' names, in alphabetical order, or in numerical order if all are numbers."""

    def __init__(self, section: DataSection, folder: Any) -> None:
        reading = read_folder(folder, section.splits.names())
        if reading.refusal:
            raise reading.refusal
        labels = {name: label for label, name in enumerate(reading.classes)}
        splits = {
            split: [
                ImageFile(reading.folders[split] / name, f"{split}/{name}", labels[of])
                for of, found in classes.items()
                for name in found
            ]
            for split, classes in reading.files.items()
        }
        super().__init__(section, folder.resolve().name, reading.classes, splits, reading.notes())
