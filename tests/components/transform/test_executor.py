"""What a preprocessing_fn may return, and what it analyses; the retries of renames that a bucket refuses at first."""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib
import itertools
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from apache_beam.transforms import util

from tests.artifacts import artifact, example, outputs, write_records
from tests.folders import write_files
from tfx_estimator import testing
from tfx_estimator.components.transform import Transform
from tfx_estimator.components.transform.executor import checked, retrying_renames
from tfx_estimator.model_fn.bridge import tf1
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.user_source.frames import is_users_module


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (None, "returned None"),
        ({}, "returned an empty dict"),
        ({"image": tf.constant(1), "label": None}, "returned None for 'label'"),
        ({1: tf.constant(1)}, "the key 1"),
    ],
)
def test_anything_but_a_dict_of_tensors_is_refused_with_the_functions_location(returned, text):
    def preprocessing_fn(inputs, custom_config):
        return returned

    function = checked(functools.partial(preprocessing_fn, custom_config={}))
    with pytest.raises(UserCodeError) as caught:
        function({})
    assert text in str(caught.value)
    line = preprocessing_fn.__code__.co_firstlineno
    assert f'File "{__file__}", line {line}, in preprocessing_fn' in str(caught.value)


def test_tensors_of_all_kinds_are_accepted():
    ragged, sparse = tf.ragged.constant([[1], []]), tf.sparse.from_dense([[1]])
    tensors = {"dense": tf.constant(1), "ragged": ragged, "sparse": sparse}
    assert checked(lambda inputs: inputs)(tensors) is tensors


def found(named):
    """The preprocessing_fn that the executor finds."""
    return Transform.EXECUTOR_SPEC.executor_class()._GetPreprocessingFn(named, {})


def test_the_component_checks_the_result_of_its_preprocessing_fn(importable):
    (importable / "returns_nothing.py").write_text("def preprocessing_fn(inputs):\n    pass\n")
    function = found({"preprocessing_fn": "returns_nothing.preprocessing_fn"})
    with pytest.raises(UserCodeError, match=r"returned None\n.*returns_nothing.py\", line 1"):
        function({})


def test_only_the_modules_of_a_preprocessing_fn_of_tensorflow_1_see_it(importable, monkeypatch):
    # Until this test ends: the tests' modules count as the user's.
    monkeypatch.setattr(builtins, "__import__", builtins.__import__)
    (importable / "of_1.py").write_text(
        "import tensorflow as tf\n\ndef scaled(image):\n    return tf.to_float(image) / 2\n"
    )
    text = "from of_1 import scaled\n\ndef preprocessing_fn(inputs):\n    return {'half': scaled(inputs['x'])}\n"
    (importable / "prepares_as_1.py").write_text(text)
    function = found({"preprocessing_fn": "prepares_as_1.preprocessing_fn", "custom_config": '{"tf1": true}'})
    assert function({"x": tf.constant([3])})["half"].numpy().tolist() == [1.5]
    assert not hasattr(sys.modules["tensorflow"], "to_float")


def test_a_dry_run_shows_it_to_the_preprocessing_fn_alone(importable):
    with tf1.shown(is_users_module):
        (importable / "seen_as_1.py").write_text("from tensorflow import to_float\n")
        importlib.import_module("seen_as_1")
    (importable / "seen_as_2.py").write_text("from tensorflow.keras.losses import MeanSquaredError\n")
    importlib.import_module("seen_as_2")
    (importable / "no_longer_as_1.py").write_text("from tensorflow import to_float\n")
    with pytest.raises(ImportError):
        importlib.import_module("no_longer_as_1")


MOMENTS = """
import tensorflow_transform as tft


def preprocessing_fn(inputs):
    return {"mean": 0 * inputs["x"] + tft.mean(inputs["x"])}
"""


def test_moments_are_the_same_however_long_a_batch_takes(importable, tmp_path, monkeypatch):
    (importable / "moments.py").write_text(MOMENTS)
    (tmp_path / "examples" / "Split-train").mkdir(parents=True)
    # Each order of adding them rounds differently.
    numbers = np.random.default_rng(1).lognormal(0, 3, 600)
    for shard in range(2):
        path = tmp_path / "examples" / "Split-train" / f"data_tfrecord-{shard:05d}-of-00002"
        write_records(path, [example(x=float(number)) for number in numbers[shard::2]])
    examples = artifact("Examples", tmp_path / "examples")
    examples.split_names = '["train"]'
    inputs = {"examples": [examples], "schema": [testing.artifact("Schema", [{"x": 0.5}])]}
    # The size of a batch by the time that others took, as an idle and a busy machine may choose it.
    sizes = itertools.cycle([1, 7, 300])
    choose = util._BatchSizeEstimator.next_batch_size

    def chosen(self):
        return choose(self) if self._min_batch_size == self._max_batch_size else next(sizes)

    found = []
    for run in ("idle", "busy"):
        made = outputs(tmp_path / run, transform_graph="TransformGraph")
        properties = {"preprocessing_fn": "moments.preprocessing_fn", "disable_statistics": 1}
        Transform.EXECUTOR_SPEC.executor_class().Do(inputs, made, properties)
        layer = tft.TFTransformOutput(made["transform_graph"][0].uri).transform_features_layer()
        found.append(layer({"x": tf.constant([[3.0]])})["mean"].numpy().item())
        monkeypatch.setattr(util._BatchSizeEstimator, "next_batch_size", chosen)
    assert found[0] == pytest.approx(numbers.mean(), rel=1e-6)
    assert found[0] == found[1]


@pytest.fixture
def failing(monkeypatch):
    """Makes the first renames fail as a bucket's do; returns how many failures remain."""
    left = [0]
    rename = tf.io.gfile.rename

    def fail(src, dst, overwrite=False):
        if left[0]:
            left[0] -= 1
            raise tf.errors.NotFoundError(None, None, f"404 when renaming {src} to {dst}")
        rename(src, dst, overwrite)

    monkeypatch.setattr(tf.io.gfile, "rename", fail)
    return left


@pytest.mark.parametrize(("times", "renamed"), [(0, True), (1, True), (3, True), (4, False)])
def test_the_rename_of_an_existing_folder_is_retried(tmp_path, failing, times, renamed):
    write_files(tmp_path, {"made/inner/graph": "graph"})
    failing[0] = times
    refuses = contextlib.nullcontext() if renamed else pytest.raises(tf.errors.NotFoundError)
    with retrying_renames(), refuses:
        tf.io.gfile.rename(str(tmp_path / "made"), str(tmp_path / "published"), overwrite=True)
    assert (tmp_path / "published" / "inner" / "graph").exists() is renamed


def test_a_missing_folder_is_reported_at_once(tmp_path, failing):
    failing[0] = 2
    before = tf.io.gfile.rename
    with retrying_renames(), pytest.raises(tf.errors.NotFoundError):
        tf.io.gfile.rename(str(tmp_path / "nothing"), str(tmp_path / "published"))
    assert failing == [1]
    assert tf.io.gfile.rename is before
