"""The embedded data set: 1,797 handwritten digits, in the form of MNIST."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

_CITATION = """\
@misc{alpaydin1998optical,
  author = {Alpaydin, E. and Kaynak, C.},
  title = {Optical Recognition of Handwritten Digits},
  year = {1998},
  howpublished = {UCI Machine Learning Repository},
  doi = {10.24432/C50P49}
}"""


class Digits(tfds.core.GeneratorBasedBuilder):
    """The digits that scikit-learn ships, brought to 28 x 28 x 1 so that a network for MNIST trains on them.

    One split, `train`, in TFDS's own fixed pseudo-random order: `train[:80%]` is a fair sample.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "scikit-learn's 8 x 8 digits, upscaled three times, with a margin of 2."}

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description="1,797 handwritten digits of 13 writers (the test part of UCI's Optical Recognition of "
            "Handwritten Digits, as shipped with scikit-learn): 8 x 8 images with 17 grey levels, upscaled to 28 x 28.",
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(28, 28, 1), dtype=np.uint8),
                    "label": tfds.features.ClassLabel(names=[str(digit) for digit in range(10)]),
                }
            ),
            supervised_keys=("image", "label"),
            homepage="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
            citation=_CITATION,
            license="CC BY 4.0",
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Iterator]:
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Iterator[tuple[int, dict[str, Any]]]:
        from sklearn.datasets import load_digits

        digits = load_digits()
        for key, (image, label) in enumerate(zip(digits.images, digits.target)):
            yield key, {"image": upscale(image), "label": int(label)}

    @classmethod
    def content_fingerprint(cls) -> str:
        """Returns a hash of what the examples are made from; it is known before they are prepared."""
        spec = importlib.util.find_spec("sklearn")
        assert spec is not None, "scikit-learn is a requirement of this package"
        assert spec.origin is not None
        source = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
        return hashlib.sha256(source.read_bytes() + Path(__file__).read_bytes()).hexdigest()


def upscale(image: np.ndarray) -> np.ndarray:
    """Brings a digit to MNIST's form: bilinear to three times the size, then a margin of 2 pixels.

    Args:
        image: (8, 8), values 0 to 16.

    Returns:
        (28, 28, 1) uint8, values 0 to 255.
    """
    size, factor = image.shape[0], 3
    # The centre of output pixel i lies at (i + 0.5) / factor - 0.5 of the input; beyond the edge, the edge goes on.
    position = np.clip((np.arange(size * factor) + 0.5) / factor - 0.5, 0, size - 1)
    low = np.minimum(position.astype(int), size - 2)
    weights = np.zeros((size * factor, size))
    weights[np.arange(size * factor), low] = 1 - (position - low)
    weights[np.arange(size * factor), low + 1] = position - low
    large = weights @ image @ weights.T
    return np.pad(np.round(large * (255 / 16)).astype(np.uint8), 2)[..., np.newaxis]
