"""An evaluation whose data set repeats without end."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tests.refusals import refused
from tfx_estimator.components.trainer.user_input.input_check import check_evaluation_ends
from tfx_estimator.pipeline.base.errors import UserCodeError


def _check(input_fn, **options) -> None:
    estimator = tf.estimator.Estimator(lambda features, mode: None)
    check_evaluation_ends({"estimator": estimator, "eval_spec": tf.estimator.EvalSpec(input_fn, **options)})


def _data(count=None):
    words = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), 0)
    rows = tf.data.Dataset.from_tensor_slices(["a", "b", "c"]).map(words.lookup)
    return rows.shuffle(3).repeat(count).batch(2).prefetch(1)


def _tensors(count=None):
    return tf.compat.v1.data.make_one_shot_iterator(tf.data.Dataset.range(3).repeat(count)).get_next()


@pytest.mark.parametrize("data", [_data, _tensors])
def test_an_evaluation_without_end_is_refused_before_training(data):
    with refused(UserCodeError, "without end", todo="trainer.eval_steps"):
        _check(data, steps=None)
    _check(data, steps=5)
    _check(lambda: data(2), steps=None)
    _check(data, steps=None, hooks=[tf.compat.v1.train.StopAtStepHook(3)])


def test_what_has_no_known_end_is_evaluated():
    _check(lambda: tf.data.Dataset.range(3).filter(lambda number: number > 1).map(lambda number: number), steps=None)
    _check(lambda: tf.data.Dataset.from_generator(lambda: iter([1]), tf.int64), steps=None)
