"""What a Keras model of the user's is fed with, and what a served one answers."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tfx_estimator.components.trainer.estimator.first_call import call_first
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.model_fn.step.classifier import make_model_fn
from tfx_estimator.model_fn.user_models.keras_model import build, inputs_of, served
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.config.trainer import TrainerSection

pytestmark = pytest.mark.unit

SHAPES = {"image": [4, 4, 1], "mean": [1]}
_PARAMS = {
    "num_classes": 3,
    "train_steps": 1,
    "global_batch_size": 2,
    "seed": 1,
    "optimizer": {"name": "sgd", "learning_rate": 0.1, "schedule": "constant"},
}


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
    there = _features(*features)
    if "picture" in there:
        there["picture"] = tf.ones([2, 4, 4, 1])
    model = _functional(*names)
    found = inputs_of(model, there)
    if isinstance(given, str):
        assert found is there[given]
    else:
        assert list(found) == given
        assert all(found[name] is there[name] for name in given)
    assert model(found).shape == [2, 3]


@pytest.mark.parametrize(
    ("keys", "features", "given"),
    [
        # As Keras's guides build them: the inputs have no names of their own.
        ({"image": None, "mean": None}, ["mean", "image"], {"image": "image", "mean": "mean"}),
        ({"mean": None, "image": None}, ["image", "mean", "more"], {"image": "image", "mean": "mean"}),
        ({"image": None}, ["image"], {"image": "image"}),
        ({"pixels": None}, ["image", "mean"], {"pixels": "image"}),
        # And where they have, Keras goes by the keys as well.
        ({"image": "mean", "mean": "image"}, ["image", "mean"], {"image": "image", "mean": "mean"}),
        ({"mean": "image"}, ["image", "mean"], {"mean": "mean"}),
    ],
)
def test_a_dict_of_inputs_is_given_the_features_of_its_keys(keys, features, given):
    inputs = {key: tf.keras.Input(SHAPES.get(key, [4, 4, 1]), name=name) for key, name in keys.items()}
    flat = {key: tf.keras.layers.Flatten()(each) for key, each in inputs.items()}
    model = tf.keras.Model(inputs, {key: tf.reduce_sum(each, axis=-1) for key, each in flat.items()})
    there = _features(*features)
    found = inputs_of(model, there)
    assert sorted(found) == sorted(given)
    assert all(found[key] is there[name] for key, name in given.items())
    for key, name in given.items():
        np.testing.assert_allclose(model(found)[key], tf.reduce_sum(tf.keras.layers.Flatten()(there[name]), axis=-1))


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


def test_an_input_that_no_feature_is_named_after_is_told():
    with pytest.raises(UserCodeError, match="named image, median; the features are image, mean") as caught:
        inputs_of(_functional("image", "median"), _features("image", "mean"))
    assert "return median from the preprocessing_fn" in str(caught.value)
    inputs = {key: tf.keras.Input([1]) for key in ("b", "a")}
    keyed = tf.keras.Model(inputs, tf.keras.layers.add(list(inputs.values())))
    with pytest.raises(UserCodeError, match="the dict of a, b; the features are image, mean") as caught:
        inputs_of(keyed, _features("image", "mean"))
    assert "for keys, {'image': tf.keras.Input(...), ...}" in str(caught.value)


def test_a_model_that_does_not_take_the_features_is_told():
    spec = {"image": tf.io.FixedLenFeature([4, 4, 1], tf.float32), "label": tf.io.FixedLenFeature([], tf.int64)}
    built = tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(3)])
    build(built, spec)
    assert built.built
    wrong = tf.keras.Sequential([tf.keras.layers.Conv2D(2, 9), tf.keras.layers.Flatten(), tf.keras.layers.Dense(3)])
    with pytest.raises(UserCodeError, match=r"cannot be called with a batch of the features, image \[1, 4, 4, 1\]"):
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
    ("last", "said"),
    [
        (lambda layers: layers.Dense(5), "gives 5 numbers an example; the data have 3 classes"),
        (lambda layers: layers.Dense(1), "gives 1 number an example; the data have 3 classes"),
        (lambda layers: layers.Reshape([2, 8]), r"gives numbers of the shape \[2, 8\] an example"),
        (None, "returns a list of 2; the data have 3 classes"),
    ],
)
def test_a_network_without_a_score_for_each_class_is_told_on_every_path(monkeypatch, last, said):
    from tfx_estimator.components.trainer.keras import model

    def network(num_classes):
        if last:
            return tf.keras.Sequential([tf.keras.layers.Flatten(), last(tf.keras.layers)])
        one = _functional("image")
        return tf.keras.Model(one.input, [one.output, one.output])

    spec = {"image": tf.io.FixedLenFeature([4, 4, 1], tf.float32), "label": tf.io.FixedLenFeature([], tf.int64)}
    maker = model.ModelMaker(TrainerSection(model="own:network", train_steps=1), 3, spec)
    monkeypatch.setattr(model, "find_function", lambda _: network)
    with pytest.raises(UserCodeError, match=said) as caught:
        maker.make()
    assert "end it with Dense(num_classes)" in str(caught.value)
    model_fn, predict = make_model_fn(network), ModeKeys.PREDICT
    with tf.Graph().as_default():
        features = {"image": tf.compat.v1.placeholder(tf.float32, [None, 4, 4, 1])}
        with pytest.raises(UserCodeError, match=said):
            model_fn(features, None, predict, {"num_classes": 3, "seed": 1})


def _ends(last):
    """A network's function, by what its network ends with."""
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
        "zeros": lambda n: tf.keras.Sequential(
            [layers.Flatten(), layers.Dense(n, "softmax", kernel_initializer="zeros")]
        ),
        "sigmoid": lambda n: sequential(n, layers.Activation("sigmoid")),
        "layer": lambda n: sequential(n, layers.Softmax()),
        "nested": lambda n: tf.keras.Sequential([sequential(n, layers.Softmax())]),
        "functional": lambda n: functional(n, layers.Softmax()),
        "op": lambda n: functional(n, tf.nn.softmax),
        "mean": lambda n: functional(n, mean),
        "class": lambda n: Own(n, gate=False),
        "gate of a class": lambda n: Own(n, gate=True),
        "bias": lambda n: sequential(n, layers.Dense(n, bias_initializer=tf.constant_initializer(1 / n))),
        "relu": lambda n: sequential(n, layers.ReLU()),
        "frozen": lambda n: _frozen(sequential(n)),
        "bare": lambda n: tf.keras.Sequential([layers.Flatten(), layers.Lambda(lambda flat: flat[:, :n])]),
    }[last]


def _frozen(model):
    model.trainable = False
    return model


@pytest.mark.parametrize("path", ["keras", "estimator"])
@pytest.mark.parametrize(
    ("last", "said"),
    [
        ("softmax", "ends with softmax"),
        ("zeros", "ends with softmax"),
        ("sigmoid", "ends with sigmoid"),
        ("layer", "ends with softmax"),
        ("nested", "ends with softmax"),
        ("functional", "ends with softmax"),
        ("op", "ends with softmax"),
        ("mean", "puts out probabilities: of made-up examples they add up to 1"),
        ("class", "puts out probabilities: of made-up examples they add up to 1"),
        ("gate of a class", ""),
        ("bias", ""),
        ("relu", ""),
        ("frozen", "no variable of the network is trainable: all 2 are frozen"),
        ("bare", "no variable of the network is trainable: it has none"),
    ],
)
def test_probabilities_and_nothing_to_train_are_refused_on_every_path(monkeypatch, last, said, path):
    from tfx_estimator.components.trainer.keras import model

    network = _ends(last)
    spec = {"image": tf.io.FixedLenFeature([4, 4, 1], tf.float32), "label": tf.io.FixedLenFeature([], tf.int64)}
    maker = model.ModelMaker(TrainerSection(model="own:network", train_steps=1), 3, spec)
    monkeypatch.setattr(model, "find_function", lambda _: network)
    settings = Settings(declaration=None, label_names=("a", "b", "c"))
    look = maker.make if path == "keras" else lambda: call_first(network, settings, spec)
    if not said:
        look()
        return
    with pytest.raises(UserCodeError, match=said) as caught:
        look()
    assert ("end it with Dense(num_classes)" in str(caught.value)) is ("trainable" not in said)


@pytest.mark.parametrize("last", ["frozen", "bare"])
def test_a_network_of_a_graph_alone_with_nothing_to_train_is_refused_there(tmp_path, last):
    estimator = tf.estimator.Estimator(make_model_fn(_ends(last)), str(tmp_path), params=_PARAMS)
    batch = {"image": tf.zeros([2, 4, 4, 1]).numpy()}, np.zeros(2, np.int64)
    with pytest.raises(UserCodeError, match="no variable of the network is trainable"):
        estimator.train(lambda: tf.data.Dataset.from_tensors(batch), steps=1)


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


@pytest.mark.parametrize("path", ["keras", "keras, compiled", "estimator"])
@pytest.mark.parametrize("form", ["functional", "dict", "sequential"])
def test_one_of_integers_is_refused_for_features_of_floats(monkeypatch, tmp_path, form, path):
    from tfx_estimator.components.trainer.keras import model

    def network(num_classes):
        made = _of_type(form, "uint8")
        if "compiled" in path:
            made.compile("sgd", "sparse_categorical_crossentropy")
        return made

    spec = {"image": tf.io.FixedLenFeature([4, 4, 1], tf.float32), "label": tf.io.FixedLenFeature([], tf.int64)}
    maker = model.ModelMaker(TrainerSection(model="own:network", train_steps=1), 3, spec)
    monkeypatch.setattr(model, "find_function", lambda _: network)
    estimator = tf.estimator.Estimator(make_model_fn(network), str(tmp_path), params=_PARAMS)
    batch = {"image": np.ones([2, 4, 4, 1], np.float32)}, np.zeros(2, np.int64)
    look = {
        "keras": maker.make,
        "keras, compiled": maker.make,
        "estimator": lambda: estimator.train(lambda: tf.data.Dataset.from_tensors(batch), steps=1),
    }[path]
    with pytest.raises(UserCodeError, match=r"the model's input \w+ is of uint8, and its feature of float32") as caught:
        look()
    assert caught.value.todo == "make the Input without dtype='uint8'; or have the preprocessing_fn return uint8"


@pytest.mark.parametrize(
    ("declared", "given"), [("float32", "uint8"), ("uint8", "uint8"), ("int32", "uint8"), ("float16", "float32")]
)
@pytest.mark.parametrize("form", ["functional", "dict", "sequential"])
def test_any_other_is_called(form, declared, given):
    spec = {"image": tf.io.FixedLenFeature([4, 4, 1], getattr(tf, given))}
    assert build(_of_type(form, declared), spec).shape == [1, 3]
