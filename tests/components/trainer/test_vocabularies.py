"""Weights and slots under another vocabulary."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft

from tests.refusals import refused
from tfx_estimator import testing
from tfx_estimator.components.trainer.vocabularies import Vocabulary, carry, features_of, read_vocabularies
from tfx_estimator.pipeline.base.errors import UserCodeError


def _of(words: str, others: int = 1, first: int = 0, size: int = 0) -> Vocabulary:
    return Vocabulary(tuple(word.encode() for word in words), first, others, size)


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
    carried = carry(prefix, f"{tmp_path}/next/model.ckpt-0", old, new, {}, ["shop", "shop_kind"])
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


@pytest.mark.parametrize(
    "slot", ["training/Ftrl/shop/weights/linear", "Adam/shop/weights/m", "opt/Adam/shop/weights/m"]
)
def test_each_device_of_a_graph_has_its_copy_of_a_slot(tmp_path, slot):
    # Not every variable of such a name is a copy.
    rows = {"shop__weights": _rows(1, 2), "tower__replica_1": _rows(5), "tower__replica_2__kernel": _rows(6)}
    own = {"tower/replica_1": [5], "tower/replica_2/kernel": [6], "shop/weights": [2, 1], slot: [4, 3]}
    slots = {slot.replace("/", "__"): _rows(3, 4), f"{slot}/replica_1".replace("/", "__"): _rows(3, 4)}
    _save(f"{tmp_path}/a", **rows, **slots)
    for devices in (1, 3):
        carry(f"{tmp_path}/a", f"{tmp_path}/{devices}", {"shop": _of("ab", 0)}, {"shop": _of("ba", 0)}, {}, (), devices)
        reader = tf.train.load_checkpoint(f"{tmp_path}/{devices}")
        found = {key: reader.get_tensor(key).ravel().tolist() for key in reader.get_variable_to_shape_map()}
        assert found == own | {f"{slot}/replica_{each}": [4, 3] for each in range(1, devices)}


def _carried(folder, old, new, declared=None, features=(), **tensors) -> dict[str, list[float]]:
    """Carries the variables over; returns their rows."""
    prefix = _save(f"{folder}/a", **tensors)
    carry(prefix, f"{folder}/b", old, new, declared or {}, features)
    reader = tf.train.load_checkpoint(f"{folder}/b")
    return {key: reader.get_tensor(key).ravel().tolist() for key in reader.get_variable_to_shape_map()}


def test_a_table_with_room_keeps_its_length_and_without_places_for_others_a_new_word_is_the_mean(tmp_path):
    # As TFX's taxi: 1,010 rows, whatever the vocabulary's size.
    old, new = {"company": _of("ab", 2), "w": _of("ab", 0)}, {"company": _of("bca", 2), "w": _of("cba", 0)}
    rows = {"company__weights": _rows(1, 2, 7, 8, 0, 0), "wide": _rows(1, 3), "wide__Ftrl": _rows(4, 5)}
    found = _carried(tmp_path, old, new, {"w": ("wi*e",)}, **rows)
    assert found["company/weights"] == [2, 7.5, 1, 7, 8, 0]
    assert found["wide"] == [2, 3, 1]
    # A slot belongs to its variable.
    assert found["wide/Ftrl"] == [4.5, 5, 4]


def test_words_may_begin_after_a_padding_and_other_words_be_minus_one(tmp_path):
    old = {"padded": _of("ab", 0, first=1), "open": _of("ab", 0, size=3)}
    new = {"padded": _of("bac", 0, first=1), "open": _of("cba", 0, size=4)}
    found = _carried(tmp_path, old, new, padded=_rows(100, 1, 2), open_table=_rows(1, 2), all__open=_rows(1, 2, 9))
    assert found["padded"] == [100, 2, 1, 1.5]
    assert found["open_table"] == [1.5, 2, 1]
    assert found["all/open"] == [1.5, 2, 1, 9]


def test_only_the_variables_of_the_feature_are_moved(tmp_path):
    changed = ({"shop": _of("abc", 0), "model": _of("xyz", 0)}, {"shop": _of("cab", 0), "model": _of("zxy", 0)})
    names = ("linear/linear_model/hour/weights", "linear/hour_X_shop/weights", "shop_kind/weights", "hidden/kernel")
    rows = {name.replace("/", "__"): _rows(1, 2, 3) for name in (*names, "linear/model/weights", "shop/weights")}
    found = _carried(tmp_path, *changed, features=["shop", "shop kind", "hour", "model"], **rows)
    assert {name for name, values in found.items() if values == [1, 2, 3]} == {*names}
    assert found["shop/weights"] == found["linear/model/weights"] == [3, 1, 2]


def test_a_shared_table_is_of_each_of_its_features(tmp_path):
    both = ({"pickup": _of("ab", 0), "dropoff": _of("ab", 0)}, {"pickup": _of("ba", 0), "dropoff": _of("ba", 0)})
    found = _carried(tmp_path, *both, dropoff_pickup_shared_embedding__weights=_rows(1, 2))
    assert found == {"dropoff_pickup_shared_embedding/weights": [2, 1]}


def test_a_changed_vocabulary_without_a_variable_is_told_unless_none_is_declared(tmp_path):
    prefix = _save(f"{tmp_path}/a", table=_rows(1, 2), kind_buckets=_rows(5))
    old, new = {"kind": _of("ab", 0)}, {"kind": _of("ba", 0)}
    with refused(UserCodeError, "nobody has no vocabulary"):
        carry(prefix, f"{tmp_path}/b", old, new, {"nobody": ("*",)})
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


def _preprocess(inputs: dict) -> dict:
    words = tf.sparse.to_dense(inputs["word"], default_value="")[:, 0]
    numbers = inputs["number"]
    vocabulary = tft.compute_and_apply_vocabulary
    return {
        "word_xf": vocabulary(tf.strings.lower(words), num_oov_buckets=3),
        "padded": tf.reshape(vocabulary(words) + 1, [-1]),
        "number": vocabulary(numbers, top_k=2, num_oov_buckets=1),
        "size": tf.cast(tf.strings.length(words), tf.int64),
        "crossed": vocabulary(tf.strings.join([words, tf.strings.as_string(numbers)])),
    }


def test_the_transform_graph_tells_which_feature_numbers_which_words():
    rows = [{"word": [word], "number": number} for word, number in zip("AABbCC", (7, 7, 5, 5, 7, 9))]
    spec = {"word": tf.io.VarLenFeature(tf.string), "number": tf.io.FixedLenFeature([], tf.int64)}
    schema = tft.DatasetMetadata.from_feature_spec(spec).schema
    graph = testing.artifact("TransformGraph", (_preprocess, rows, schema)).uri
    found = read_vocabularies(graph)
    assert set(features_of(graph)) == {"word_xf", "padded", "number", "size", "crossed"}
    assert {name: (each.first, each.others) for name, each in found.items() if each.is_feature} == {
        "word_xf": (0, 3),
        "padded": (1, 0),
        "number": (0, 1),
    }
    assert set(found["word_xf"].words) == {b"a", b"b", b"c"}
    assert found["number"].words == (b"7", b"5")
    # Two columns decide it.
    (crossed,) = [each for each in found.values() if not each.is_feature]
    assert b"A7" in crossed.words


@pytest.mark.parametrize("longer", ["a", "z"])
def test_a_vocabulary_that_begins_as_another_one_is_not_taken_for_it(longer):
    def preprocess(inputs: dict) -> dict:
        each = inputs.items()
        return {f"{name}_xf": tft.compute_and_apply_vocabulary(words, num_oov_buckets=1) for name, words in each}

    words = {longer: "nnnyym", "m": "nnnnyy"}
    rows = [{name: each[row] for name, each in words.items()} for row in range(6)]
    schema = tft.DatasetMetadata.from_feature_spec(dict.fromkeys(words, tf.io.FixedLenFeature([], tf.string))).schema
    found = read_vocabularies(testing.artifact("TransformGraph", (preprocess, rows, schema)).uri)
    assert (found[f"{longer}_xf"].words, found[f"{longer}_xf"].others) == ((b"n", b"y", b"m"), 1)
    assert (found["m_xf"].words, found["m_xf"].others) == ((b"n", b"y"), 1)
