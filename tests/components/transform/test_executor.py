"""What a preprocessing_fn may return."""

from __future__ import annotations

import functools

import pytest
import tensorflow as tf

from tfx_estimator.components.transform import Transform
from tfx_estimator.components.transform.executor import checked
from tfx_estimator.pipeline.base.errors import UserCodeError

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (None, "returned None"),
        ([tf.constant(1)], "returned [<tf.Tensor"),
        ({}, "returned an empty dict"),
        ({"image": tf.constant(1), "label": None}, "returned None for 'label'"),
        ({"image": {"nested": tf.constant(1)}}, "for 'image'"),
        ({1: tf.constant(1)}, "the key 1"),
    ],
)
def test_what_is_no_dict_of_tensors_is_refused_with_the_functions_place(returned, text):
    def preprocessing_fn(inputs, custom_config):
        return returned

    function = checked(functools.partial(preprocessing_fn, custom_config={}))
    with pytest.raises(UserCodeError) as caught:
        function({})
    assert text in str(caught.value)
    line = preprocessing_fn.__code__.co_firstlineno
    assert f'File "{__file__}", line {line}, in preprocessing_fn' in str(caught.value)


def test_tensors_of_all_kinds_are_passed_on():
    ragged, sparse = tf.ragged.constant([[1], []]), tf.sparse.from_dense([[1]])
    tensors = {"dense": tf.constant(1), "ragged": ragged, "sparse": sparse}
    assert checked(lambda inputs: inputs)(tensors) is tensors


def test_the_component_looks_at_what_its_preprocessing_fn_returns(tmp_path, monkeypatch):
    (tmp_path / "returns_nothing.py").write_text("def preprocessing_fn(inputs):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    executor = Transform.EXECUTOR_SPEC.executor_class()
    function = executor._GetPreprocessingFn({"preprocessing_fn": "returns_nothing.preprocessing_fn"}, {})
    with pytest.raises(UserCodeError, match=r"returned None\n.*returns_nothing.py\", line 1"):
        function({})
