"""Sources of images and labels: TFDS data sets, IDX files, CIFAR batches, image files, the embedded digits."""

from tfx_estimator.data.sources.open import open_source
from tfx_estimator.data.sources.source import ImageSource, SourceInfo
from tfx_estimator.data.sources.splits import ExampleRange

__all__ = ["ExampleRange", "ImageSource", "SourceInfo", "open_source"]
