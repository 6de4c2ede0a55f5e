"""Frozen variables of a Keras model, and of any model_fn."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.model_fn.user_models.test_weights_file import base, flat, nested, saved, values
from tests.refusals import refused
from tfx_estimator.components.trainer.estimator import keras_layers
from tfx_estimator.model_fn.user_models.freezing import freeze
from tfx_estimator.model_fn.user_models.warm_start import warm_keras
from tfx_estimator.pipeline.base.errors import UserCodeError

v1 = tf.compat.v1


def trained(model: tf.keras.Model) -> list[str]:
    return sorted(each.name.partition(":")[0] for each in model.trainable_variables)


HEADS = ["head/bias", "head/kernel", "new/bias", "new/kernel"]
REST = ["first/bias", "first/kernel", "second/bias", "second/kernel"]


@pytest.mark.parametrize(
    ("patterns", "left", "in_inference"),
    [
        (["base"], HEADS, True),
        (["base/*"], HEADS, True),
        (["norm"], HEADS + REST, True),
        (["norm/*"], HEADS + REST, True),
        (["base/norm/gamma", "*/beta"], HEADS + REST, True),
    ],
)
def test_a_pattern_freezes_variables_and_whole_layers(patterns, left, in_inference):
    model = nested()
    assert freeze(model, patterns) == f"trainer.freeze: {10 - len(left)} of 10 variables are not trained"
    assert trained(model) == sorted(left)
    norm = model.layers[0].get_layer("norm")
    before = norm.moving_mean.numpy()
    model(tf.random.normal([16, 8], 3.0), training=True)
    assert np.array_equal(norm.moving_mean, before) is in_inference


def test_what_is_frozen_still_finds_its_weights_in_a_file(tmp_path):
    # Of equal shapes, so that another order would not be noticed.
    path, given = saved(base(), tmp_path, "model.weights.h5")
    model = flat()
    freeze(model, ["norm/*", "first"])
    warm_keras(model, path, ())
    for name, value in given.items():
        np.testing.assert_array_equal(values(model)[name], value, err_msg=name)


@pytest.mark.parametrize("pattern", ["norm/gamma", "*/moving_mean", "*/kernel"])
def test_a_part_of_a_layer_is_refused_as_keras_saves_it_by_place(pattern):
    with refused(UserCodeError, "trainer.freeze: only a part of the layer") as caught:
        freeze(nested(), [pattern])
    assert pattern == "*/kernel" or "name the layer: `norm`" in caught.value.todo


@pytest.mark.parametrize("pattern", ["norm", "norm/*"])
def test_a_layer_with_averages_alone_is_frozen(pattern):
    layer = tf.keras.layers.BatchNormalization(name="norm", center=False, scale=False)
    model = tf.keras.Sequential([tf.keras.Input([8]), layer, tf.keras.layers.Dense(2)])
    freeze(model, [pattern])
    model(tf.random.normal([16, 8], 3.0), training=True)
    np.testing.assert_array_equal(layer.moving_mean, np.zeros(8))


@pytest.mark.parametrize("form", ["model.keras", "model.h5"])
def test_a_frozen_layer_is_saved_as_it_is(tmp_path, form):
    model = flat()
    given = saved(model, tmp_path, "weights.h5")[1]
    freeze(model, ["norm/*", "first"])
    model.save(str(tmp_path / form))
    found = values(tf.keras.models.load_model(str(tmp_path / form), compile=False))
    for name, value in given.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("pattern", ["bsae/*", "first/kernels", ""])
def test_a_pattern_that_matches_nothing_is_refused(pattern):
    with refused(UserCodeError, f"trainer.freeze: no variable or layer of the model matches `{pattern}`") as caught:
        freeze(nested(), [pattern])
    assert pattern != "first/kernels" or caught.value.todo == "did you mean `first/kernel`?"


def model_fn(optimizer: str):
    """A base of Keras, a layer of TensorFlow 1 and a variable of its own, trained by one of many optimizers."""

    def make(features, labels, mode):
        hidden = base()(features, training=True)
        hidden = v1.layers.batch_normalization(
            v1.layers.dense(hidden, 4, name="v1/dense"), name="v1/norm", training=True
        )
        with v1.variable_scope("scope"):
            factor = v1.get_variable("factor", [4], initializer=v1.ones_initializer())
        loss = tf.reduce_sum((hidden * factor - 1) ** 2)
        step = v1.train.get_or_create_global_step()
        if optimizer == "keras":
            adam = tf.keras.optimizers.legacy.Adam(0.1)
            adam.iterations = step
            train_op = tf.group(adam.get_updates(loss, v1.trainable_variables()))
        elif optimizer == "by hand":
            variables = v1.trainable_variables()
            gradients, _ = tf.clip_by_global_norm(tf.gradients(loss, variables), 1.0)
            updates = [v1.assign_sub(each, 0.1 * gradient) for each, gradient in zip(variables, gradients)]
            train_op = tf.group(*updates, v1.assign_add(step, 1))
        else:
            variables = v1.global_variables() if optimizer == "all" else None
            chosen = [each for each in variables if "/" in each.name] if variables else None
            train_op = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, step, chosen)
        updates = v1.get_collection(v1.GraphKeys.UPDATE_OPS)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=tf.group(train_op, *updates))

    return make


def input_fn():
    return tf.data.Dataset.from_tensors((tf.random.stateless_normal([16, 8], (1, 2)), tf.zeros([16]))).repeat()


def test_an_initialiser_may_set_a_frozen_variable(tmp_path):
    checkpoint = str(tmp_path / "given")
    with tf.Graph().as_default(), v1.Session() as session:
        v1.get_variable("base/dense/kernel", initializer=np.full([8, 4], 3.0, np.float32))
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, checkpoint)

    def make(features, labels, mode):
        hidden = v1.layers.dense(features, 4, name="base/dense", use_bias=False)
        v1.train.init_from_checkpoint(checkpoint, {"base/": "base/"})
        loss = tf.reduce_mean((v1.layers.dense(hidden, 1, name="head") - 1) ** 2)
        train_op = v1.train.AdamOptimizer(0.1).minimize(loss, v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    estimator = tf.estimator.Estimator(make, str(tmp_path / "run"))
    keras_layers.freeze(estimator, ["base/*"], lambda told: None)
    estimator.train(input_fn, steps=2)
    np.testing.assert_array_equal(estimator.get_variable_value("base/dense/kernel"), np.full([8, 4], 3.0))
    assert np.abs(estimator.get_variable_value("head/bias")).max() > 0


@pytest.mark.parametrize("updates", [True, False])
def test_a_branch_that_reads_a_frozen_variable_is_no_update(tmp_path, updates):
    def make(features, labels, mode):
        kept, other = (v1.get_variable(name, [], initializer=v1.ones_initializer()) for name in ("kept", "other"))
        loss = tf.reduce_mean((features * kept * other) ** 2)

        def change():
            return (kept if updates else other).assign_sub(0.1 * kept)

        changed = tf.cond(loss > 0, change, lambda: tf.constant(0.0))
        with tf.control_dependencies([changed]):
            train_op = v1.assign_add(v1.train.get_global_step(), 1)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    estimator = tf.estimator.Estimator(make, str(tmp_path))
    keras_layers.freeze(estimator, ["kept"], lambda told: None)
    if updates:
        with refused(UserCodeError, "trainer.freeze: kept is frozen, and the model_fn updates it all the same"):
            estimator.train(input_fn, steps=2)
    else:
        estimator.train(input_fn, steps=2)
        assert estimator.get_variable_value("kept") == 1 > estimator.get_variable_value("other")


def read(estimator) -> dict[str, np.ndarray]:
    return {name: estimator.get_variable_value(name) for name in estimator.get_variable_names()}


def run(folder, optimizer: str, patterns, strategy=None):
    """Trains; returns the model's variables before the first step and after the third, and what was told."""
    config = tf.estimator.RunConfig(train_distribute=strategy, save_checkpoints_steps=1, keep_checkpoint_max=9)
    estimator, told = tf.estimator.Estimator(model_fn(optimizer), str(folder), config), []
    keras_layers.freeze(estimator, patterns, told.append)
    estimator.train(input_fn, steps=3)
    first = tf.train.load_checkpoint(str(folder / "model.ckpt-0"))
    return {name: first.get_tensor(name) for name in first.get_variable_to_shape_map()}, read(estimator), told


@pytest.mark.parametrize("optimizer", ["v1", "keras", "by hand"])
def test_a_model_fn_of_any_optimizer_leaves_them(tmp_path, optimizer):
    before, after, told = run(tmp_path, optimizer, ["base", "v1/dense/*", "scope/factor"])
    frozen = {"v1/dense/kernel", "v1/dense/bias", "scope/factor"}
    frozen |= {name for name in after if name.startswith(("first/", "norm/", "second/")) and name.count("/") == 1}
    assert len(frozen) == 11
    for name in (name for name in before if not name.startswith("Adam")):
        # TensorFlow 1's normalisation follows its own `training`.
        assert np.array_equal(after[name], before[name]) is (name in frozen), name
    assert told == ["trainer.freeze: 9 of 11 variables are not trained"]
    # Neither have they slots.
    assert not [name for name in after if any(name.startswith(f"{each}/") for each in frozen)]


def test_a_model_fn_under_replicas_leaves_them_as_well(tmp_path):
    strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"], tf.distribute.ReductionToOneDevice())
    before, after, told = run(tmp_path, "v1", ["first", "scope/*"], strategy)
    assert told == ["trainer.freeze: 3 of 11 variables are not trained"]
    for name in ("first/kernel", "first/bias", "scope/factor"):
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)
    assert np.abs(after["second/kernel"] - before["second/kernel"]).max() > 0


def test_a_model_fn_that_updates_them_by_name_is_refused(tmp_path):
    with refused(UserCodeError, "trainer.freeze: scope/factor is frozen, and the model_fn updates it all the same"):
        run(tmp_path, "all", ["scope/*"])
    with refused(UserCodeError, "trainer.freeze: no variable or layer of the model matches `scopes/*`") as caught:
        run(tmp_path, "v1", ["scopes/*"])
    assert caught.value.todo == "did you mean `scope/*`?"
