"""The results that a preprocessing_fn may return; and the retries of renames that a bucket refuses at first."""

from __future__ import annotations

import functools

import pytest
import tensorflow as tf

from tfx_estimator.components.transform import Transform
from tfx_estimator.components.transform.executor import checked, retrying_renames
from tfx_estimator.pipeline.base.errors import UserCodeError

pytestmark = pytest.mark.unit


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


def test_the_component_checks_the_result_of_its_preprocessing_fn(importable):
    (importable / "returns_nothing.py").write_text("def preprocessing_fn(inputs):\n    pass\n")
    executor = Transform.EXECUTOR_SPEC.executor_class()
    function = executor._GetPreprocessingFn({"preprocessing_fn": "returns_nothing.preprocessing_fn"}, {})
    with pytest.raises(UserCodeError, match=r"returned None\n.*returns_nothing.py\", line 1"):
        function({})


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
    (tmp_path / "made" / "inner").mkdir(parents=True)
    (tmp_path / "made" / "inner" / "graph").write_text("graph")
    failing[0] = times
    with retrying_renames():
        if renamed:
            tf.io.gfile.rename(str(tmp_path / "made"), str(tmp_path / "published"), overwrite=True)
        else:
            with pytest.raises(tf.errors.NotFoundError):
                tf.io.gfile.rename(str(tmp_path / "made"), str(tmp_path / "published"), overwrite=True)
    assert (tmp_path / "published" / "inner" / "graph").exists() is renamed


def test_a_missing_folder_is_reported_at_once(tmp_path, failing):
    failing[0] = 2
    before = tf.io.gfile.rename
    with retrying_renames(), pytest.raises(tf.errors.NotFoundError):
        tf.io.gfile.rename(str(tmp_path / "nothing"), str(tmp_path / "published"))
    assert failing == [1]
    assert tf.io.gfile.rename is before
