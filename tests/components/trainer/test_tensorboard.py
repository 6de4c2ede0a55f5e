"""Images and histograms next to the curves, on each path."""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft

from tests.components.trainer.conftest import each_path
from tests.equivalence.conftest import read_weights
from tfx_estimator.components.trainer.estimator.hooks import AdditionsHook
from tfx_estimator.components.trainer.estimator.patches import _count_from_step_0
from tfx_estimator.components.trainer.settings import built_in_function
from tfx_estimator.components.trainer.tensorboard import first_images
from tfx_estimator.data.input_fn import ExampleReader
from tfx_estimator.pipeline.config.augment import Operation
from tfx_estimator.pipeline.config.runtime import TensorBoard

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


def _features() -> dict[str, Any]:
    return {
        "grey": tf.zeros([2, 4, 4, 1], tf.int64),
        "colour": tf.zeros([2, 4, 4, 3], tf.bfloat16),
        "two": tf.zeros([2, 4, 4, 2]),
        "text": tf.fill([2, 4, 4, 1], "a"),
        "sparse": tf.sparse.from_dense(tf.ones([2, 4, 4, 1])),
        "row": tf.zeros([2, 3]),
    }


@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize(("given", "expected"), [(tuple(_features()), {"grey", "colour"}), (("row",), set())])
def test_what_is_no_image_is_left_out(eager, given, expected):
    def input_fn(mode: str) -> tf.data.Dataset:
        features = {name: each for name, each in _features().items() if name in given}
        return tf.data.Dataset.from_tensors((features, tf.zeros([2])))

    with contextlib.nullcontext() if eager else tf.Graph().as_default():
        summary = tf.compat.v1.Summary.FromString(first_images(input_fn, 1))
    assert {each.tag.split("/")[1] for each in summary.value} == expected


class _Written:
    """Stands in for the writer of event files."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def add_summary(self, summary: Any, step: int) -> None:
        self.steps.append(step)

    def add_session_log(self, *_: Any) -> None: ...

    def flush(self) -> None: ...


@pytest.mark.parametrize(("runs", "points"), [(1, [1, 10, 20, 30]), (4, [0, 8, 18, 28])])
def test_a_model_fn_that_accumulates_gradients_writes_each_point_once(runs, points, tmp_path, monkeypatch):
    written = _Written()
    monkeypatch.setattr(tf.compat.v1.summary.FileWriterCache, "get", lambda _: written)
    with tf.Graph().as_default():
        step = tf.compat.v1.train.get_or_create_global_step()
        count = tf.compat.v1.get_variable("count", [], tf.int64, tf.compat.v1.zeros_initializer())
        counted = count.assign_add(1, read_value=True)
        train = tf.cond(tf.equal(counted % runs, 0), lambda: step.assign_add(1, read_value=True), lambda: step + 0)
        tf.compat.v1.get_variable("weight", [2])
        summary = tf.compat.v1.summary.scalar("loss", 1.0)
        curve = tf.compat.v1.train.SummarySaverHook(save_steps=10, summary_writer=written, summary_op=summary)
        _count_from_step_0(lambda *_: None, curve)
        own = AdditionsHook(TensorBoard(histograms=True), str(tmp_path), None, 10, True)
        for hook, expected in ((curve, points), (own, [10, 20, 30])):
            written.steps.clear()
            with tf.compat.v1.train.SingularMonitoredSession([hook]) as session:
                for _ in range(30 * runs):
                    session.run(train)
            assert written.steps == expected
