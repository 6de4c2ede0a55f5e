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
    """The digits that scikit-learn ships, brought to MNIST's form so that a network of one reads the other.

    One split, `train`, in TFDS's own fixed pseudo-random order: `train[:80%]` is a fair sample.
    """

    VERSION = tfds.core.Version("2.0.0")
    RELEASE_NOTES = {"2.0.0": "Like MNIST's digits: 20 x 20, with sharp strokes, around their centre of mass."}

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
    """Brings a digit to MNIST's form: bilinear to 20 x 20, with sharper strokes, its centre of mass in the middle.

    Args:
        image: (8, 8), values 0 to 16.

    Returns:
        (28, 28, 1) uint8, values 0 to 255.
    """
    size, large, whole = image.shape[0], 20, 28
    # The centre of output pixel i lies at (i + 0.5) * size / large - 0.5; beyond the edge, the edge goes on.
    position = np.clip((np.arange(large) + 0.5) * size / large - 0.5, 0, size - 1)
    low = np.minimum(position.astype(int), size - 2)
    weights = np.zeros((large, size))
    weights[np.arange(large), low] = 1 - (position - low)
    weights[np.arange(large), low + 1] = position - low
    # Enlarged, a stroke is a broad blur, whose darker part is as wide as a pen's.
    digit = np.clip((weights @ image @ weights.T / 16 - 0.35) * 2.5, 0, 1)
    made = np.zeros((whole, whole, 1), np.uint8)
    centre = [(digit.sum(axis=1 - axis) @ np.arange(large)) / digit.sum() for axis in (0, 1)]
    top, left = (int(np.clip(round((whole - 1) / 2 - each), 0, whole - large)) for each in centre)
    made[top : top + large, left : left + large, 0] = np.round(digit * 255)
    return made
