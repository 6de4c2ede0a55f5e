"""Weights and slots under another vocabulary."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.refusals import refused
from tfx_estimator.components.trainer.vocabularies import Vocabulary, carry
from tfx_estimator.pipeline.base.errors import UserCodeError


def _of(words: str, others: int = 1) -> Vocabulary:
    return Vocabulary(tuple(word.encode() for word in words), others)


def _save(path: str, **tensors) -> str:
    names = [name.replace("__", "/") for name in tensors]
    tf.raw_ops.SaveV2(
        prefix=path,
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tf.constant(each) for each in tensors.values()],
    )
    return path


def _rows(*values: float) -> np.ndarray:
    return np.array([[value] for value in values], np.float32)


def test_each_word_keeps_its_weights_and_slots_and_a_new_one_begins_as_an_unknown_one(tmp_path):
    prefix = _save(
        f"{tmp_path}/model.ckpt-70",
        linear__linear_model__shop__weights=_rows(1, 2, 3, 9),
        training__Ftrl__linear__linear_model__shop__weights__linear=_rows(10, 20, 30, 90),
        # Of another feature, whose name begins with this one's.
        deep_shop_kind__embeddings=_rows(4, 5, 6, 7),
        hidden__kernel=_rows(1, 2, 3, 4),
        global_step=np.int64(70),
    )
    old = {"shop": _of("abc"), "shop_kind": _of("xyz")}
    new = {"shop": _of("cbda"), "shop_kind": _of("xyz")}
    carried = carry(prefix, f"{tmp_path}/next/model.ckpt-0", old, new, {})
    reader = tf.train.load_checkpoint(f"{tmp_path}/next/model.ckpt-0")
    found = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    assert found["linear/linear_model/shop/weights"].ravel().tolist() == [3, 2, 9, 1, 9]
    slot = "training/Ftrl/linear/linear_model/shop/weights/linear"
    assert found[slot].ravel().tolist() == [30, 20, 90, 10, 90]
    assert found["deep_shop_kind/embeddings"].ravel().tolist() == [4, 5, 6, 7]
    assert found["hidden/kernel"].ravel().tolist() == [1, 2, 3, 4]
    assert found["global_step"] == 0
    assert sorted(carried.moved["shop"]) == ["linear/linear_model/shop/weights", slot]
    assert carried.new == {"shop": 1}


def test_a_table_with_room_keeps_its_length_and_without_places_for_others_a_new_word_is_the_mean(tmp_path):
    # As TFX's taxi: 1,010 rows, whatever the vocabulary's size.
    prefix = _save(f"{tmp_path}/a", company_xf__weights=_rows(1, 2, 7, 8, 0, 0), wide=_rows(1, 3))
    old, new = {"company": _of("ab", 2), "w": _of("ab", 0)}, {"company": _of("bca", 2), "w": _of("cba", 0)}
    carry(prefix, f"{tmp_path}/b", old, new, {"w": ("wi*",)})
    reader = tf.train.load_checkpoint(f"{tmp_path}/b")
    assert reader.get_tensor("company_xf/weights").ravel().tolist() == [2, 7.5, 1, 7, 8, 0]
    assert reader.get_tensor("wide").ravel().tolist() == [2, 3, 1]


def test_a_changed_vocabulary_without_a_variable_is_told_unless_none_is_declared(tmp_path):
    prefix = _save(f"{tmp_path}/a", table=_rows(1, 2), kind_buckets=_rows(5))
    old, new = {"kind": _of("ab", 0)}, {"kind": _of("ba", 0)}
    with refused(UserCodeError, "feature kind", todo="trainer.warm_start.vocabularies: {kind:"):
        carry(prefix, f"{tmp_path}/b", old, new, {})
    assert not tf.io.gfile.glob(f"{tmp_path}/b*")
    carry(prefix, f"{tmp_path}/b", old, new, {"kind": ()})
    assert tf.train.load_checkpoint(f"{tmp_path}/b").get_tensor("table").ravel().tolist() == [1, 2]


@pytest.mark.parametrize("kind", ["adam", "ftrl", "sgd"])
def test_a_keras_training_goes_on_with_its_optimizer(tmp_path, kind):
    def made(words: int):
        embedding = tf.keras.layers.Embedding(words, 3, name="deep_shop")
        model = tf.keras.Sequential([tf.keras.Input([], dtype=tf.int64), embedding, tf.keras.layers.Dense(1)])
        optimizer = tf.keras.optimizers.legacy.Ftrl(0.1) if kind == "ftrl" else tf.keras.optimizers.get(kind)
        model.compile(optimizer, "mse")
        return model, tf.train.Checkpoint(model=model, optimizer=model.optimizer)

    def step(model, places):
        model.train_on_batch(np.array(places), np.ones(len(places)))
        return [(each.name, each.numpy()) for each in (*model.weights, *_variables(model.optimizer))]

    first, checkpoint = made(4)
    step(first, [0, 1, 2, 0])
    prefix = checkpoint.write(f"{tmp_path}/model.ckpt-1")
    carry(prefix, f"{tmp_path}/model.ckpt-0", {"shop": _of("abc")}, {"shop": _of("cab")}, {})
    other, restored = made(4)
    step(other, [0])
    restored.read(f"{tmp_path}/model.ckpt-0").assert_existing_objects_matched()
    weights, moved = first.layers[0].get_weights()[0], other.layers[0].get_weights()[0]
    assert moved.tolist() == weights[[2, 0, 1, 3]].tolist()
    assert other.optimizer.iterations.numpy() == 0
    if kind == "adam":
        return  # its first steps are corrected for a beginning
    # The same word moves by the same step.
    first.optimizer.iterations.assign(0)
    one, two = step(first, [0, 2]), step(other, [1, 0])
    for (name, value), (_, moved) in zip(one, two):
        np.testing.assert_allclose(moved, value[[2, 0, 1, 3]] if "deep_shop" in name else value, rtol=1e-6)


def _variables(optimizer):
    return optimizer.variables() if callable(optimizer.variables) else optimizer.variables
