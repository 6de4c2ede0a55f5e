"""Images and histograms next to the curves, on each path."""

from __future__ import annotations

import itertools
import os
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft

from tests.components.trainer.conftest import each_path
from tests.equivalence.conftest import read_weights
from tfx_estimator.components.trainer.settings import built_in_function
from tfx_estimator.data.input_fn import ExampleReader
from tfx_estimator.pipeline.config.augment import Operation

pytestmark = pytest.mark.timeout(240)

AUGMENT = [{"random_flip": {}}, {"random_crop": {"padding": 4}}]
DECLARED = {"images": 5, "histograms": True}


def _values(folder: str, field: str) -> dict[str, dict[int, Any]]:
    """Returns the values of a field, `image` or `tensor`, by tag and step."""
    found: dict[str, dict[int, Any]] = {}
    for path in sorted(tf.io.gfile.glob(os.path.join(folder, "events.out.tfevents.*"))):
        for event in tf.compat.v1.train.summary_iterator(path):
            for value in event.summary.value:
                if value.HasField(field):
                    found.setdefault(value.tag, {})[event.step] = value
    return found


def _first_batch(digits: dict[str, list[Any]]) -> np.ndarray:
    """Returns the images of the first batch of training."""
    files = tf.io.gfile.glob(os.path.join(digits["examples"][0].uri, "Split-train", "*"))
    graph = tft.TFTransformOutput(digits["transform_graph"][0].uri)
    augment = tuple(Operation.parse_obj(each) for each in AUGMENT)
    spec, transform = graph.raw_feature_spec(), graph.transform_raw_features
    reader = ExampleReader(files, [], spec, transform, 32, 32, 1, seed=42, resident_bytes=2**29, augment=augment)
    features, _ = next(iter(reader.input_fn("train")))
    return features["image"].numpy()


def _shown(image: np.ndarray) -> np.ndarray:
    """Returns an image with negative numbers as TensorFlow writes it: 0 is grey."""
    return 128 + image * 127 / np.abs(image).max()


@each_path("keras")
def test_they_show_the_first_batch_and_every_checkpoint_and_change_no_weight(training, digits, settings, path):
    weights = []
    for declared in ({}, DECLARED):
        made = settings({"augment": AUGMENT, "path": path, "tensorboard": declared})
        _, run = training.run(made, **built_in_function(made.trainer))
        weights.append(read_weights(run.uri))
        assert bool(_values(run.uri, "image")) == bool(_values(run.uri, "tensor")) == bool(declared)
        training.root = training.root / "again"
    assert sorted(weights[0]) == sorted(weights[1])
    for name in weights[0]:
        np.testing.assert_array_equal(weights[0][name], weights[1][name], err_msg=name)

    images = _values(run.uri, "image")
    expected = _first_batch(digits)
    assert sorted(images) == [f"first_batch/image/image/{index}" for index in range(5)]
    for each, image in zip(sorted(images), expected):
        ((step, value),) = images[each].items()
        assert step == 0
        np.testing.assert_allclose(tf.io.decode_png(value.image.encoded_image_string), _shown(image), atol=1)

    histograms = _values(run.uri, "tensor")
    names = {name.partition("/")[2] if path == "estimator" else name for name in histograms}
    assert names >= {f"{layer}/{part}" for layer in ("conv1", "logits") for part in ("kernel", "bias")}
    for name, values in histograms.items():
        assert sorted(values) == [20, 40, 60]
        edges = [tf.make_ndarray(each.tensor)[[0, -1], [0, 1]].tolist() for _, each in sorted(values.items())]
        assert all(one != other for one, other in itertools.pairwise(edges))
        last = weights[1][name]
        np.testing.assert_allclose(edges[-1], [last.min(), last.max()], rtol=1e-6)
