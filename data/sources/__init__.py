"""Where images and labels come from: TFDS data sets, IDX files, CIFAR binary batches, the embedded digits."""

from data.sources.open import open_source
from data.sources.source import ImageSource, SourceInfo
from data.sources.splits import ExampleRange

__all__ = ["ExampleRange", "ImageSource", "SourceInfo", "open_source"]
