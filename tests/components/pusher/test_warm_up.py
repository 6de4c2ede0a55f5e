"""Warm-up requests of a pushed version for TensorFlow Serving."""

from __future__ import annotations

import os

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from tests.artifacts import example, write_records
from tests.components.conftest import until_it_lives
from tests.components.pusher.executions import execute
from tfx_estimator.components.pusher.object_store import push
from tfx_estimator.components.pusher.versions import LocalTree
from tfx_estimator.components.pusher.warm_up import FILE
from tfx_estimator.data.encoded_images import decode_encoded
from tfx_estimator.data.preprocessing import decode_images
from tfx_estimator.pipeline.base import errors

ADDRESS = "store://bucket/serving"
SHAPE = (2, 3, 1)
IMAGES = np.random.default_rng(1).integers(0, 256, (10, *SHAPE), np.uint8)


class Sums(tf.Module):
    """A model with a declaration's signatures, each of which returns the sum of an image's pixels."""

    def signatures(self):
        def served(name, spec, to_images):
            def answer(given):
                return {"sum": tf.reduce_sum(tf.cast(to_images(given), tf.int64), [1, 2, 3])}

            return tf.function(answer).get_concrete_function(tf.TensorSpec([None, *spec[1:]], spec[0], name))

        def of_examples(given):
            parsed = tf.io.parse_example(given, {"image": tf.io.FixedLenFeature([], tf.string)})
            return decode_images(parsed["image"], SHAPE)

        return {
            "serving_default": served("examples", (tf.string,), of_examples),
            "images": served("images", (tf.uint8, *SHAPE), lambda given: given),
            "encoded": served("encoded", (tf.string,), lambda given: decode_encoded(given, SHAPE, resized=False)),
        }


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder, sums = tmp_path_factory.mktemp("model"), Sums()
    tf.saved_model.save(sums, str(folder / "Format-Serving"), signatures=sums.signatures())
    return str(folder)


@pytest.fixture
def examples(tmp_path):
    (tmp_path / "examples" / "Split-eval").mkdir(parents=True)
    records = (example(image=image.tobytes(), label=1) for image in IMAGES)
    write_records(tmp_path / "examples" / "Split-eval" / "part-0", records)
    return str(tmp_path / "examples")


@pytest.fixture
def pushed(model, examples, tmp_path):
    execute(model, tmp_path / "serving", tmp_path / "output", examples=examples)
    return str(tmp_path / "output")


def test_a_version_comes_with_requests_that_its_signatures_answer(model, examples, tmp_path):
    base = tmp_path / "serving"
    pushed = execute(model, base, tmp_path / "output", examples=examples)
    version = pushed.get_string_custom_property("pushed_destination")
    signatures = tf.saved_model.load(version).signatures
    answered = []
    for record in tf.data.TFRecordDataset(f"{version}/{FILE}").as_numpy_iterator():
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        given = {name: tf.constant(tf.make_ndarray(value)) for name, value in request.inputs.items()}
        sums = signatures[request.model_spec.signature_name](**given)["sum"].numpy()
        np.testing.assert_array_equal(sums, IMAGES[: len(sums)].astype(int).sum((1, 2, 3)))
        answered.append((request.model_spec.signature_name, len(sums)))
    assert answered == [(name, size) for name in ("encoded", "images", "serving_default") for size in (1, 8)]
    again = execute(model, base, tmp_path / "again", examples=examples)
    assert again.get_string_custom_property("pushed_destination") == version


def test_in_a_store_the_requests_precede_saved_model_pb(pushed, bucket):
    seen = []
    for _ in until_it_lives(bucket, lambda: push(LocalTree(pushed), ADDRESS), lambda: None):
        for version in filter(str.isdigit, os.listdir(bucket.folder) if bucket.folder.exists() else []):
            seen.append([(bucket.folder / version / name).exists() for name in (FILE, "saved_model.pb")])
    assert [True, True] in seen
    assert [False, True] not in seen


def test_examples_that_cannot_be_read_push_nothing(model, examples, tmp_path):
    with open(os.path.join(examples, "Split-eval", "part-0"), "r+b") as file:
        file.seek(20)
        file.write(b"\0\0\0\0")
    with pytest.raises(errors.PipelineError, match="corrupted"):
        execute(model, tmp_path / "serving", tmp_path / "output", examples=examples)
    assert not (tmp_path / "serving").exists()
