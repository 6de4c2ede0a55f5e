"""The embedded digits."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from tests.data.sizes import opened, read_all, split_sizes
from tests.root import finish, start_python
from tfx_estimator.data.digits import upscale

_PREPARE = """
import sys
from tfx_estimator.data.sources import open_source
from tfx_estimator.pipeline.config.data import DataSection
source = open_source(DataSection(dataset="digits", data_dir=sys.argv[1]))
source.prepare()
print(sum(source.shard_lengths()["train"]))
"""


def test_a_digit_is_converted_to_mnists_shape():
    image = np.zeros((8, 8))
    image[3, 3] = 16
    large = upscale(image)
    assert (large.shape, large.dtype) == ((28, 28, 1), np.uint8)
    # The bright pixel keeps its centre (2 + 3 * 3 + 1) and its value; the margin stays dark.
    assert np.unravel_index(large.argmax(), large.shape) == (12, 12, 0)
    assert large.max() == 255
    assert large.sum() == large[2:-2, 2:-2].sum()


def test_every_digit_of_scikit_learn_occurs_once(tmp_path):
    source = opened("digits", data_dir=str(tmp_path))
    assert (source.info.image_shape, source.info.label_names) == ((28, 28, 1), tuple("0123456789"))
    assert source.info.licence == "CC BY 4.0"
    assert "alpaydin" in source.info.citation
    before = source.fingerprint(["train"])
    source.prepare()
    assert source.fingerprint(["train"]) == before  # the second run of a pipeline must hit its cache
    assert split_sizes(source) == {"train": 1797}
    digits = load_digits()
    expected = sorted((upscale(image).tobytes(), int(label)) for image, label in zip(digits.images, digits.target))
    assert sorted((image.tobytes(), label) for image, label in read_all(source)) == expected


def test_two_processes_may_prepare_at_once(tmp_path):
    assert finish(*(start_python("-c", _PREPARE, str(tmp_path)) for _ in range(2))) == ["1797\n"] * 2
    assert [path.name for path in (tmp_path / "digits").iterdir()] == ["1.0.0"]
