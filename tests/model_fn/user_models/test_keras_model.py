"""Inputs of a user's Keras model, and outputs of a served one."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from tfx_estimator.model_fn.step.classifier import make_model_fn
from tfx_estimator.model_fn.user_models.keras_model import build, inputs_of, served
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.testing import call_model_fn

SHAPES = {"image": [4, 4, 1], "mean": [1]}


def _features(*names):
    return {name: tf.fill([2, *SHAPES.get(name, [1])], float(place)) for place, name in enumerate(names)}


def _functional(*names):
    inputs = [tf.keras.Input(SHAPES.get(name, [4, 4, 1]), name=name) for name in names]
    flat = [tf.keras.layers.Flatten()(each) for each in inputs]
    joined = tf.keras.layers.concatenate(flat) if flat[1:] else flat[0]
    return tf.keras.Model(inputs, tf.keras.layers.Dense(3)(joined))


@pytest.mark.parametrize(
    ("names", "features", "given"),
    [
        (["pixels"], ["image"], "image"),
        (["pixels"], ["image", "mean"], "image"),
        (["mean"], ["image", "mean"], "mean"),
        (["pixels"], ["picture"], "picture"),
        (["image", "mean"], ["mean", "image"], ["image", "mean"]),
        (["mean", "image"], ["image", "mean", "more"], ["mean", "image"]),
    ],
)
def test_a_functional_model_is_given_the_features_of_its_inputs(names, features, given):
    tensors = _features(*features)
    if "picture" in tensors:
        tensors["picture"] = tf.ones([2, 4, 4, 1])
    model = _functional(*names)
    found = inputs_of(model, tensors)
    if isinstance(given, str):
        assert found is tensors[given]
    else:
        assert list(found) == given
        assert all(found[name] is tensors[name] for name in given)
    assert model(found).shape == [2, 3]


@pytest.mark.parametrize(
    ("keys", "features", "given"),
    [
        # As Keras's guides build them: the inputs have no names of their own.
        ({"image": None, "mean": None}, ["mean", "image"], {"image": "image", "mean": "mean"}),
        ({"mean": None, "image": None}, ["image", "mean", "more"], {"image": "image", "mean": "mean"}),
        ({"image": None}, ["image"], {"image": "image"}),
        ({"pixels": None}, ["image", "mean"], {"pixels": "image"}),
        # With names, Keras still uses the keys.
        ({"image": "mean", "mean": "image"}, ["image", "mean"], {"image": "image", "mean": "mean"}),
        ({"mean": "image"}, ["image", "mean"], {"mean": "mean"}),
    ],
)
def test_a_dict_of_inputs_is_given_the_features_of_its_keys(keys, features, given):
    inputs = {key: tf.keras.Input(SHAPES.get(key, [4, 4, 1]), name=name) for key, name in keys.items()}
    flat = {key: tf.keras.layers.Flatten()(each) for key, each in inputs.items()}
    model = tf.keras.Model(inputs, {key: tf.reduce_sum(each, axis=-1) for key, each in flat.items()})
    tensors = _features(*features)
    found = inputs_of(model, tensors)
    assert sorted(found) == sorted(given)
    assert all(found[key] is tensors[name] for key, name in given.items())
    for key, name in given.items():
        np.testing.assert_allclose(model(found)[key], tf.reduce_sum(tf.keras.layers.Flatten()(tensors[name]), axis=-1))


def test_others_are_given_the_image_or_all():
    class Own(tf.keras.Model):
        pass

    both, image = _features("image", "mean"), _features("image")
    sequential = tf.keras.Sequential([tf.keras.layers.Flatten()])
    assert inputs_of(sequential, both) is both["image"]
    assert inputs_of(sequential, {"mean": both["mean"]}) is both["mean"]
    assert inputs_of(Own(), image) is image["image"]
    assert inputs_of(Own(), both) == both


@pytest.mark.parametrize("kind", ["functional", "subclassed"])
def test_a_feature_of_any_number_of_values_is_an_input_as_well(kind):
    class Own(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = tf.keras.layers.Dense(3)

        def call(self, features):
            counts = tf.sparse.reduce_sum(features["tags"], 1) + features["words"].row_lengths()
            return self.dense(features["image"]) + tf.cast(counts[:, None], tf.float32)

    spec = {
        "image": tf.io.FixedLenFeature([4], tf.float32),
        "tags": tf.io.VarLenFeature(tf.int64),
        "words": tf.io.RaggedFeature(tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }
    model = Own()
    if kind == "functional":
        image, tags = tf.keras.Input([4], name="image"), tf.keras.Input([None], name="tags", sparse=True, dtype="int64")
        words = tf.keras.Input([None], name="words", ragged=True, dtype="string")
        features = {"image": image, "tags": tags, "words": words}
        model = tf.keras.Model(features, Own()(features))
    assert build(model, spec).shape == (1, 3)


def test_lookups_of_one_value_an_example_are_built():
    layers = tf.keras.layers
    word, number = layers.Input((), name="word", dtype=tf.string), layers.Input((), name="number")
    of_word = layers.StringLookup(vocabulary=["a", "b"], output_mode="one_hot")(word)
    of_number = layers.Discretization([0.5, 1.5], output_mode="one_hot")(number)
    model = tf.keras.Model([word, number], layers.Dense(3)(layers.Concatenate()([of_word, of_number])))
    spec = {"word": tf.io.FixedLenFeature([], tf.string), "number": tf.io.FixedLenFeature([], tf.float32)}
    assert build(model, spec).shape == (2, 3)


def test_an_input_that_no_feature_is_named_after_is_refused():
    with pytest.raises(UserCodeError, match="named image, median; the features are image, mean") as caught:
        inputs_of(_functional("image", "median"), _features("image", "mean"))
    assert "return median from the preprocessing_fn" in str(caught.value)
    inputs = {key: tf.keras.Input([1]) for key in ("b", "a")}
    keyed = tf.keras.Model(inputs, tf.keras.layers.add(list(inputs.values())))
    with pytest.raises(UserCodeError, match="the dict of a, b; the features are image, mean") as caught:
        inputs_of(keyed, _features("image", "mean"))
    assert "for keys, {'image': tf.keras.Input(...), ...}" in str(caught.value)


def test_a_model_that_does_not_take_the_features_is_refused():
    spec = {"image": tf.io.FixedLenFeature([4, 4, 1], tf.float32), "label": tf.io.FixedLenFeature([], tf.int64)}
    built = tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(3)])
    build(built, spec)
    assert built.built
    wrong = tf.keras.Sequential([tf.keras.layers.Conv2D(2, 9), tf.keras.layers.Flatten(), tf.keras.layers.Dense(3)])
    with pytest.raises(UserCodeError, match=r"cannot be called with a batch of the features, image \(1, 4, 4, 1\)"):
        build(wrong, spec)


def test_scores_are_served_under_the_names_of_a_networks_outputs():
    scores = np.array([[0.2, 0.7, 0.1]], np.float32)
    for probabilities, given in ((True, scores), (False, np.log(scores) + 5)):
        found = {name: each.numpy() for name, each in served(tf.constant(given), probabilities, 3, "abc").items()}
        assert sorted(found) == ["class_ids", "classes", "logits", "probabilities"]
        np.testing.assert_allclose(found["probabilities"], scores, atol=1e-6)
        assert (found["class_ids"], found["classes"]) == (1, b"b")
    (name,) = served(tf.constant([[0.3]]), True, 2)
    assert name == "probabilities"
    assert sorted(served({"a": tf.constant([[0.3]]), "b": tf.constant([[1.0]])}, True, 2)) == ["a", "b"]


@pytest.mark.parametrize(
    ("last", "message"),
    [
        (lambda layers: layers.Dense(5), "gives 5 numbers an example; the data have 3 classes"),
        (lambda layers: layers.Reshape([2, 8]), r"gives numbers of the shape \[2, 8\] an example"),
        (None, "returns a list of 2; the data have 3 classes"),
    ],
)
def test_a_network_without_a_score_for_each_class_is_refused_on_every_path(look, last, message):
    def network(num_classes):
        if last:
            return tf.keras.Sequential([tf.keras.layers.Flatten(), last(tf.keras.layers)])
        one = _functional("image")
        return tf.keras.Model(one.input, [one.output, one.output])

    with pytest.raises(UserCodeError, match=message) as caught:
        look(network, "keras")
    assert "end it with Dense(num_classes)" in str(caught.value)
    with pytest.raises(UserCodeError, match=message):
        _serve(network)


def _serve(network):
    """Calls it as an Estimator does that predicts."""
    call_model_fn(make_model_fn(network), "infer", {"num_classes": 3, "seed": 1}, shape=(4, 4, 1))


def _ends(last):
    """Returns a network's function, by the last layers of the network."""
    layers = tf.keras.layers

    class Own(tf.keras.Model):
        def __init__(self, num_classes, gate):
            super().__init__()
            self.flatten, self.dense = layers.Flatten(), layers.Dense(num_classes)
            self.gate = layers.Dense(num_classes, activation="softmax") if gate else None

        def call(self, image):
            flat = self.flatten(image)
            scores = self.dense(flat)
            return scores * self.gate(flat) if self.gate else tf.nn.softmax(scores)

    def sequential(num_classes, *ends):
        return tf.keras.Sequential([layers.Flatten(), layers.Dense(num_classes), *ends])

    def functional(num_classes, function):
        image = tf.keras.Input([4, 4, 1], name="image")
        return tf.keras.Model(image, function(layers.Dense(num_classes)(layers.Flatten()(image))))

    def mean(scores):
        return layers.average([tf.nn.softmax(scores), tf.nn.softmax(2 * scores)])

    return {
        "softmax": lambda n: tf.keras.Sequential([layers.Flatten(), layers.Dense(n, activation="softmax")]),
        "sigmoid": lambda n: sequential(n, layers.Activation("sigmoid")),
        "layer": lambda n: sequential(n, layers.Softmax()),
        "nested": lambda n: tf.keras.Sequential([sequential(n, layers.Softmax())]),
        "op": lambda n: functional(n, tf.nn.softmax),
        "mean": lambda n: functional(n, mean),
        "class": lambda n: Own(n, gate=False),
        "gate of a class": lambda n: Own(n, gate=True),
        "bias": lambda n: sequential(n, layers.Dense(n, bias_initializer=tf.constant_initializer(1 / n))),
        "frozen": lambda n: _frozen(sequential(n)),
    }[last]


def _frozen(model):
    model.trainable = False
    return model


@pytest.mark.parametrize("path", ["keras", "estimator"])
@pytest.mark.parametrize(
    ("last", "message"),
    [
        ("softmax", "ends with softmax"),
        ("sigmoid", "ends with sigmoid"),
        ("layer", "ends with softmax"),
        ("nested", "ends with softmax"),
        ("op", "ends with softmax"),
        ("mean", "outputs probabilities: for made-up examples they sum to 1"),
        ("class", "outputs probabilities: for made-up examples they sum to 1"),
        ("gate of a class", ""),
        ("bias", ""),
        ("frozen", "no variable of the network is trainable: all 2 are frozen"),
    ],
)
def test_probabilities_and_nothing_to_train_are_refused_on_every_path(look, last, message, path):
    with pytest.raises(UserCodeError, match=message) if message else contextlib.nullcontext() as caught:
        look(_ends(last), path)
    assert not message or ("end it with Dense(num_classes)" in str(caught.value)) is ("trainable" not in message)


def _of_type(form, dtype):
    layers = tf.keras.layers
    end = [layers.Rescaling(1 / 255), layers.Flatten(), layers.Dense(3)]
    image = tf.keras.Input([4, 4, 1], name="pixels", dtype=dtype)
    if form == "sequential":
        return tf.keras.Sequential([image, *end])
    found = image
    for layer in end:
        found = layer(found)
    return tf.keras.Model({"image": image} if form == "dict" else image, found)


@pytest.mark.parametrize("path", ["keras", "estimator"])
@pytest.mark.parametrize("form", ["functional", "dict", "sequential"])
def test_one_of_integers_is_refused_for_features_of_floats(look, form, path):
    def network(num_classes):
        return _of_type(form, "uint8")

    with pytest.raises(UserCodeError, match=r"the model's input \w+ is uint8, and its feature is float32") as caught:
        look(network, path) if path == "keras" else _serve(network)
    assert caught.value.todo == "make the Input without dtype='uint8'; or have the preprocessing_fn return uint8"
