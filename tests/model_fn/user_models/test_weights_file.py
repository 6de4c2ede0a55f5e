"""Weights in files of Keras, found for a model's variables."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.refusals import refused
from tfx_estimator.model_fn.user_models.warm_start import match, warm_keras
from tfx_estimator.pipeline.base.errors import UserCodeError

layers = tf.keras.layers
FORMS = ("model.weights.h5", "model.h5", "model.keras", "whole.h5")


def base() -> tf.keras.Model:
    image = tf.keras.Input([8])
    hidden = layers.BatchNormalization(name="norm")(layers.Dense(8, name="first")(image))
    return tf.keras.Model(image, layers.Dense(8, name="second")(hidden), name="base")


def nested(classes: int = 3) -> tf.keras.Model:
    return tf.keras.Sequential([base(), layers.Dense(8, name="new"), layers.Dense(classes, name="head")])


def flat(classes: int = 3) -> tf.keras.Model:
    own = base()
    return tf.keras.Model(own.input, layers.Dense(classes, name="head")(own.output))


class Towers(tf.keras.Model):
    """A subclassed model, with layers in a list, in a dict and within a layer."""

    def __init__(self) -> None:
        super().__init__(name="towers")
        self.towers = [layers.Dense(8, name="left"), tf.keras.Sequential([layers.Dense(8, name="right")])]
        self.heads = {"one": layers.Dense(8, name="head_one"), "two": layers.Dense(8, name="head_two")}
        self.norm = layers.BatchNormalization(name="between")
        self(tf.zeros([1, 8]))

    def call(self, inputs):
        for each in self.towers:
            inputs = self.norm(each(inputs))
        return self.heads["one"](inputs) - self.heads["two"](inputs)


def saved(model: tf.keras.Model, folder, form: str) -> tuple[str, dict[str, np.ndarray]]:
    random = np.random.default_rng(3)
    model.set_weights([random.normal(size=each.shape) for each in model.weights])
    path = str(folder / form)
    (model.save if form in FORMS[2:] else model.save_weights)(path)
    return path, values(model)


def values(model: tf.keras.Model) -> dict[str, np.ndarray]:
    return {each.name.partition(":")[0]: each.numpy() for each in model.weights}


def equal(model: tf.keras.Model, given: dict[str, np.ndarray]) -> set[str]:
    return {name for name, value in values(model).items() if name in given and np.array_equal(value, given[name])}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("make", [nested, flat])
def test_a_base_within_a_network_starts_from_its_own_file(tmp_path, form, make):
    path, given = saved(base(), tmp_path, form)
    model = make()
    matched = warm_keras(model, path, ())
    assert equal(model, given) == given.keys() == matched.keys.keys()
    assert len(given) == 8
    assert matched.left.startswith("head/kernel, which is not there" if make is flat else "new/kernel, which is not")
    assert len(matched.left.split("; ")) == len(model.weights) - 8


@pytest.mark.parametrize("form", FORMS)
def test_a_prefix_names_the_part_of_a_whole_networks_file(tmp_path, form):
    path, given = saved(nested(), tmp_path, form)
    model = nested(5)
    with refused(
        UserCodeError, "trainer.warm_start.weights: head/kernel is [8, 5] in the model, and [8, 3] in "
    ) as caught:
        warm_keras(model, path, ())
    assert "exclude: [head/*]" in caught.value.todo
    matched = warm_keras(model, path, (), "base")
    inner = {name for name in given if name.partition("/")[0] not in ("new", "head")}
    assert equal(model, given) == inner == matched.keys.keys()
    assert not equal(nested(5), given) & {"first/kernel"}
    other = nested(5)
    assert warm_keras(other, path, ["head/*"]).keys.keys() == equal(other, given) == inner | {"new/kernel", "new/bias"}
    # A network without the rest, from the same file.
    alone = base()
    assert warm_keras(alone, path, ()).keys.keys() == equal(alone, given) == inner


@pytest.mark.parametrize("form", FORMS[:2])
def test_a_subclassed_model_finds_its_layers(tmp_path, form):
    path, given = saved(Towers(), tmp_path, form)
    model = Towers()
    warm_keras(model, path, ())
    assert equal(model, given) == given.keys()
    assert len(given) == 12


def test_a_layer_whose_variables_have_other_names_takes_them_in_order(tmp_path):
    import h5py

    path, given = saved(base(), tmp_path, "old.h5")
    with h5py.File(path, "a") as file:
        # As in the file of Keras's VGG16.
        group = file["first"]
        for old, new in {"kernel": "first_W_1:0", "bias": "first_b_1:0"}.items():
            group[new] = group[f"first/{old}:0"][:]
        group.attrs["weight_names"] = [b"first_W_1:0", b"first_b_1:0"]
    model = nested()
    warm_keras(model, path, ())
    assert equal(model, given) == given.keys()


def test_what_matches_nothing_is_refused_with_the_nearest_of_both(tmp_path):
    path, _ = saved(base(), tmp_path, "model.h5")
    with pytest.raises(UserCodeError, match="nearest are firsts/kernel here and first/kernel there") as caught:
        match(path, {"firsts/kernel": [8, 8], "other/bias": [8]}, ())
    assert "the model has firsts/kernel, other/bias" in caught.value.expected
    what = "trainer.warm_start.prefix: no variable begins with `frist`, neither of the model nor in "
    with refused(UserCodeError, what) as caught:
        match(path, {"first/kernel": [8, 8]}, (), part="frist")
    # Without the model, the newer format tells no names.
    path, _ = saved(base(), tmp_path, "model.weights.h5")
    with pytest.raises(UserCodeError, match="save_weights") as caught:
        match(path, {"first/kernel": [8, 8]}, ())
    (tmp_path / "cut.h5").write_bytes((tmp_path / "model.h5").read_bytes()[:3000])
    with refused(UserCodeError, f"trainer.warm_start: the file {tmp_path}/cut.h5 is damaged or incomplete: "):
        match(str(tmp_path / "cut.h5"), {"first/kernel": [8, 8]}, ())


def mobile() -> tf.keras.Model:
    hidden = image = tf.keras.Input([8])
    for name in ("block_1", "block_1_end", "block_10"):
        hidden = layers.Dense(8, name=name)(hidden)
    return tf.keras.Model(image, hidden)


@pytest.mark.parametrize("form", FORMS[:2])
def test_a_prefix_takes_whole_components_of_names(tmp_path, form):
    path, given = saved(mobile(), tmp_path, form)
    for part, last in (("block_1", {"block_1"}), ("block_1/", {"block_1"}), ("block_1_*", {"block_1_end"})):
        model = mobile()
        matched = warm_keras(model, path, (), part)
        loaded = {name for name in given if name.partition("/")[0] in last}
        assert matched.keys.keys() == equal(model, given) == loaded
        assert matched.left.startswith("4 outside of trainer.warm_start.prefix: block_1")
        assert "not there" not in matched.left


def two_towers() -> tf.keras.Model:
    image, towers = tf.keras.Input([8]), []
    for tower in ("one", "two"):
        own = tf.keras.Input([8])
        towers.append(tf.keras.Model(own, layers.Dense(8, name=f"{tower}_in")(own), name=tower))
    return tf.keras.Model(image, layers.Dense(3, name="head")(towers[0](image) + towers[1](image)))


def test_a_file_that_fits_two_models_needs_a_prefix(tmp_path):
    path, given = saved(two_towers().get_layer("two"), tmp_path, "model.weights.h5")
    with refused(UserCodeError, "trainer.warm_start.weights: one and two in the model fit the file") as caught:
        warm_keras(two_towers(), path, ())
    assert "prefix: two" in caught.value.todo
    for part in ("two", "two/"):
        model = two_towers()
        assert warm_keras(model, path, (), part).keys.keys() == equal(model, given) == given.keys()
    one = two_towers()
    warm_keras(one, path, (), "one")
    np.testing.assert_array_equal(values(one)["one_in/kernel"], given["two_in/kernel"])
