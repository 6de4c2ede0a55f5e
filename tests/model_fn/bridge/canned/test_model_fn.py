"""A model_fn of feature columns and layers as source code: equal logits and steps; and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.root import run_python
from tests.stack import needs_keras_3
from tfx_estimator.model_fn.bridge.canned import calls, model_fn, optimizers
from tfx_estimator.model_fn.bridge.canned.tracing import lines_between
from tfx_estimator.model_fn.bridge.convert import convert
from tfx_estimator.model_fn.bridge.differences import MOST_OF_STEPS
from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator
from tfx_estimator.pipeline.base.errors import UserCodeError

pytestmark = pytest.mark.equivalence

bring_back_estimator()
v1, column = tf.compat.v1, tf.feature_column
layers, train, input_layer = v1.layers, v1.train, v1.feature_column.input_layer
MODE = tf.estimator.ModeKeys
_draw = np.random.RandomState(0)
FEATURES = {
    "width": _draw.rand(64).astype(np.float32),
    "sizes": _draw.rand(64, 2).astype(np.float32),
    "kind": _draw.choice(["oak", "elm", "ash", "unheard of"], 64),
    "other": _draw.choice(["oak", "elm", "ash", ""], 64),
    "weight": _draw.rand(64).astype(np.float32) + 0.5,
    "image": _draw.randint(0, 256, (64, 8, 8)).astype(np.uint8),
}
LABELS = (FEATURES["width"] * 3).astype(np.int64)


def input_fn() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((FEATURES, LABELS)).batch(16).repeat()


def eval_fn() -> tf.data.Dataset:
    return input_fn().take(4)


def kinds(name: str = "kind") -> Any:
    return column.categorical_column_with_vocabulary_list(name, ["oak", "elm", "ash"])


def columns() -> list[Any]:
    buckets = column.bucketized_column(column.numeric_column("width"), [0.3, 0.6])
    made = [
        column.numeric_column("width"),
        column.numeric_column("sizes", (2,)),
        column.indicator_column(kinds()),
        column.embedding_column(column.crossed_column([buckets, "kind"], 20), 2),
    ]
    # They refuse eager execution.
    with tf.Graph().as_default():
        return made + v1.feature_column.shared_embedding_columns([kinds(), kinds("other")], 3)


def trained(loss: tf.Tensor, optimizer: Any = None) -> tf.Operation:
    return (optimizer or train.AdagradOptimizer(0.1)).minimize(loss, train.get_global_step())


def spec(mode: str, logits: tf.Tensor, loss: Callable[[], tf.Tensor], update: Callable[..., Any] = trained) -> Any:
    if mode == MODE.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"scores": logits})
    value = loss()
    return tf.estimator.EstimatorSpec(mode, loss=value, train_op=update(value))


def of_classes(mode: str, labels: Any, logits: tf.Tensor, update: Callable[..., Any] = trained) -> Any:
    return spec(mode, logits, lambda: v1.losses.sparse_softmax_cross_entropy(labels, logits), update)


def iris(features: Any, labels: Any, mode: str, params: Any) -> Any:
    """TensorFlow's own example of a custom Estimator; with dropout and normalisation."""
    net = input_layer(features, params["columns"])
    for units in params["hidden_units"]:
        net = layers.dense(net, units, activation=tf.nn.relu, kernel_initializer=v1.keras.initializers.he_normal())
        net = layers.dropout(net, 0.2, training=mode == MODE.TRAIN)
    net = layers.batch_normalization(layers.dense(net, 5, use_bias=False), training=mode == MODE.TRAIN)
    logits = layers.dense(tf.nn.leaky_relu(net), 3, activation=None)
    classes = tf.argmax(logits, 1)
    if mode == MODE.PREDICT:
        predictions = {"class_ids": classes[:, tf.newaxis], "probabilities": tf.nn.softmax(logits), "logits": logits}
        return tf.estimator.EstimatorSpec(mode, predictions=predictions)
    loss = v1.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
    rate = train.exponential_decay(0.1, train.get_global_step(), 10, 0.9)
    with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=trained(loss, train.AdagradOptimizer(rate)))


def wide(features: Any, labels: Any, mode: str) -> Any:
    """Two inputs, that meet between layers; a part that is not trained; weighted examples."""
    linear = input_layer(features, [column.indicator_column(kinds())])
    with v1.variable_scope("deep"):
        deep = tf.stop_gradient(layers.dense(features["sizes"], 4, tf.nn.tanh))
    deep = layers.batch_normalization(deep, training=mode == MODE.TRAIN)  # whose averages nothing updates
    logits = layers.dense(tf.concat([deep, linear], 1), 1) + layers.dense(linear, 1, use_bias=False)

    def loss() -> tf.Tensor:
        is_wide = tf.cast(labels > 0, tf.float32)[:, tf.newaxis]
        return v1.losses.sigmoid_cross_entropy(is_wide, logits, features["weight"][:, tf.newaxis])

    return spec(mode, logits, loss, lambda loss: trained(loss, train.AdamOptimizer(0.01)))


def penalties(features: Any, labels: Any, mode: str) -> Any:
    """Regularizers of a layer, and a decay of all weights, as losses."""
    net = input_layer(features, [column.embedding_column(kinds(), 3)])
    if mode == MODE.TRAIN:
        net = v1.nn.dropout(tf.nn.dropout(net, 0.1), keep_prob=0.8)
    net = layers.dense(net, 4, tf.nn.relu, kernel_regularizer=tf.keras.regularizers.l1_l2(0.01, 0.1))
    logits = layers.dense(net, 3, kernel_regularizer=lambda kernel: 0.2 * tf.nn.l2_loss(kernel))

    def loss() -> tf.Tensor:
        decayed = [tf.nn.l2_loss(each) for each in v1.trainable_variables() if "bias" not in each.name]
        found = v1.losses.sparse_softmax_cross_entropy(labels, logits)
        return found + v1.losses.get_regularization_loss() + 0.05 * tf.add_n(decayed)

    return spec(mode, logits, loss)


def census(features: Any, labels: Any, mode: str) -> Any:
    """A wide and deep one, as people write it by hand; its embeddings in a layer of Keras."""
    buckets = column.bucketized_column(column.numeric_column("width"), [0.3, 0.6])
    wide = [kinds(), buckets, column.crossed_column([buckets, "other"], 20), column.numeric_column("sizes", (2,))]
    linear = v1.feature_column.linear_model(features, wide, units=3, sparse_combiner="sqrtn")
    deep = [
        column.embedding_column(kinds(), 3),
        column.numeric_column("width"),
        column.indicator_column(kinds("other")),
    ]
    net = layers.dense(tf.keras.layers.DenseFeatures(deep)(features), 5, tf.nn.relu)
    return of_classes(mode, labels, layers.dense(net, 3) + linear, lambda loss: trained(loss, train.FtrlOptimizer(0.1)))


def pictures(features: Any, labels: Any, mode: str) -> Any:
    """The network of TensorFlow's tutorials, with a normalisation, trained by an optimizer of Keras."""
    is_training = mode == MODE.TRAIN
    net = tf.reshape(tf.cast(features["image"], tf.float32) / 255.0, [-1, 8, 8, 1])
    net = layers.conv2d(net, 4, [3, 3], padding="same", activation=tf.nn.relu)
    net = layers.max_pooling2d(net, pool_size=[2, 2], strides=2)
    net = tf.nn.relu(
        layers.batch_normalization(layers.conv2d(net, 6, 3, 1, "same", use_bias=False), training=is_training)
    )
    net = tf.keras.layers.AveragePooling2D(2, 1)(net)
    net = layers.dense(layers.flatten(net), 8, tf.nn.relu)
    net = layers.dropout(net, rate=0.4, training=is_training)

    def update(loss: tf.Tensor) -> Any:
        optimizer = tf.keras.optimizers.legacy.Adam(0.01)
        optimizer.iterations = train.get_or_create_global_step()
        with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
            return optimizer.get_updates(loss, v1.trainable_variables())[0]

    return of_classes(mode, labels, layers.dense(net, 3), update)


def price(features: Any, labels: Any, mode: str) -> Any:
    """Two towers, whose product in the unit of the labels is predicted."""
    one = layers.dense(features["sizes"], 4)
    other = layers.dense(tf.stack([features["width"], features["weight"]], axis=1), 4)
    result = 10.0 * tf.reduce_sum(one * other, axis=1) + 3.0
    if mode == MODE.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"price": result, "is_high": result > 3.0})
    return spec(mode, result, lambda: v1.losses.mean_squared_error(labels, result))


def estimator(function: Any, folder: Path, hidden: tuple[int, ...] = (6, 5)) -> Any:
    params = {"columns": columns(), "hidden_units": hidden} if function is iris else None
    return tf.estimator.Estimator(function, str(folder / "model_dir"), params=params)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a trained `iris`."""
    folder = tmp_path_factory.mktemp("iris")
    estimator(iris, folder).train(input_fn, steps=5)
    return folder


def check(proof: Any, folder: Path) -> None:
    """Checks a proof, and that each weight and slot is carried over to the bit."""
    assert (proof.holds, proof.examples, proof.steps) == (True, 64, 20)
    assert proof.logits["estimator"] <= 1e-5
    assert set(proof.next_steps) >= {"loss", "weight", "slot", "step"}
    assert max(proof.next_steps.values()) <= MOST_OF_STEPS == 1e-4
    mapping = json.loads((folder / "mapping.json").read_text())
    reader = tf.train.load_checkpoint(mapping["checkpoint"])
    places = {each["tensor"]: each["place"] for each in mapping["tensors"]}
    assert set(places) == set(reader.get_variable_to_shape_map())
    with np.load(folder / "weights.npz") as values:
        assert set(values) == {*places.values()} - {""}
        for tensor, place in places.items():
            if place:
                np.testing.assert_array_equal(values[place], reader.get_tensor(tensor))


@pytest.mark.parametrize(
    "to", [pytest.param("keras2", marks=pytest.mark.long), pytest.param("keras3", marks=needs_keras_3)]
)
def test_the_logits_and_the_next_steps_equal_the_model_fns(model_dir: Path, tmp_path: Path, to: str) -> None:
    proof = convert(estimator(iris, model_dir), input_fn, eval_fn, str(tmp_path / "converted"), to)
    check(proof, tmp_path / "converted")
    assert proof.draws == {"estimator": 2, "keras": 2}
    # Three embeddings share two variables; a BatchNormalization has four.
    assert proof.tensors == {"weight": 13, "slot": 11, "step": 1}
    source = (tmp_path / "converted" / "network.py").read_text()
    assert "tf.keras.initializers.HeNormal" in source
    assert "ExponentialDecay(" in source


@pytest.mark.parametrize(
    ("function", "to", "tensors"),
    [
        (wide, "keras2", {"weight": 9, "slot": 10, "hyperparameter": 2, "step": 1}),
        (penalties, "keras2", {"weight": 5, "slot": 5, "step": 1}),
        (census, "keras2", {"weight": 10, "slot": 20, "step": 1}),
        (pictures, "keras2", {"weight": 11, "slot": 18, "hyperparameter": 4, "step": 1}),
        pytest.param(
            pictures, "keras3", {"weight": 11, "slot": 18, "hyperparameter": 4, "step": 1}, marks=needs_keras_3
        ),
        pytest.param(census, "keras3", {"weight": 10, "slot": 20, "step": 1}, marks=needs_keras_3),
        pytest.param(penalties, "keras3", {"weight": 5, "slot": 5, "step": 1}, marks=needs_keras_3),
    ],
)
def test_layers_that_meet_weighted_examples_and_penalties_go_over(
    function: Any, to: str, tensors: dict[str, int], tmp_path: Path
) -> None:
    estimator(function, tmp_path).train(input_fn, steps=5)
    proof = convert(estimator(function, tmp_path), input_fn, eval_fn, str(tmp_path / "converted"), to)
    check(proof, tmp_path / "converted")
    assert proof.tensors == tensors
    assert proof.draws == dict.fromkeys(("estimator", "keras"), {penalties: 2, pictures: 1}.get(function, 0))


@pytest.mark.long
def test_the_model_returns_what_is_predicted(tmp_path: Path) -> None:
    estimator(price, tmp_path).train(input_fn, steps=5)
    proof = convert(estimator(price, tmp_path), input_fn, eval_fn, str(tmp_path / "converted"), "keras2")
    check(proof, tmp_path / "converted")
    assert (proof.compared, proof.lines()[2].split()[2:4]) == ("add", ["add,", "estimator"])
    expected = [each["price"] for each in estimator(price, tmp_path).predict(eval_fn)]
    code = "import tfx_estimator, json, network, numpy as np; model = network.network(); network.restore(model); "
    code += "print(json.dumps(model.predict(dict(np.load('given.npz')), verbose=0).tolist()))"
    np.savez(tmp_path / "converted" / "given.npz", **{name: FEATURES[name] for name in ("sizes", "width", "weight")})
    done = run_python("-c", code, cwd=tmp_path / "converted", code=0)
    np.testing.assert_allclose(json.loads(done.stdout.splitlines()[-1]), expected, rtol=1e-5)


def test_other_layers_than_the_checkpoints_are_refused(model_dir: Path, tmp_path: Path) -> None:
    other = estimator(iris, model_dir, (6,))
    with pytest.raises(UserCodeError, match=r"dense_3/kernel of shape \[5, 3\] has no place"):
        convert(other, input_fn, eval_fn, str(tmp_path / "converted"), "keras2")
    assert not any(tmp_path.iterdir())


LOSSES: dict[str, Callable[..., tf.Tensor]] = {
    "sparse": v1.losses.sparse_softmax_cross_entropy,
    "softmax": lambda labels, logits: v1.losses.softmax_cross_entropy(tf.one_hot(labels, 3), logits),
    "sigmoid": lambda labels, logits: v1.losses.sigmoid_cross_entropy(tf.one_hot(labels, 3), logits),
    "squares": lambda labels, logits: v1.losses.mean_squared_error(tf.cast(labels, tf.float32)[:, None], logits[:, :1]),
    "by hand": lambda labels, logits: tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    ),
    "parts": lambda labels, logits: tf.reduce_sum(
        tf.concat([logits[::2, ..., tf.newaxis, 1], logits[:1, -1:]], 0)[:, 0] * tf.cast(labels[:5], tf.float32)
    ),
    "sum": lambda labels, logits: 2.0 * tf.reduce_sum(tf.nn.softmax(logits)[:, 0] * tf.cast(labels, tf.float32)),
    "head": lambda labels, logits: tf.estimator.MultiClassHead(3).loss(labels, logits, {"x": logits}),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_written_loss_has_the_same_value_and_gradient(name: str) -> None:
    labels, logits = LABELS[:8], _draw.randn(8, 3).astype(np.float32)
    with tf.Graph().as_default(), v1.Session() as session:
        given = {"labels": v1.placeholder(tf.int64, [None]), "logits": v1.placeholder(tf.float32, [None, 3])}
        loss = LOSSES[name](**given)
        fed = dict(zip(given.values(), (labels, logits)))
        expected = session.run([loss, *tf.gradients(loss, given["logits"])], fed)
        lines = lines_between("the loss", {each.ref(): name for name, each in given.items()}, loss)
    # As people write it: what TensorFlow adds for other ranks is left out.
    assert not any(each in "".join(lines) for each in ("raw_ops", "reshape")) or name == "head"
    made: dict[str, Any] = {"tf": tf}
    exec("\n    ".join(["def loss(labels, logits):", *lines]), made)
    with tf.GradientTape() as tape:
        tape.watch(given := tf.constant(logits))
        value = made["loss"](tf.constant(labels), given)
    np.testing.assert_array_equal(value, expected[0])
    np.testing.assert_allclose(tape.gradient(value, given), expected[1], rtol=1e-6, atol=1e-9)


def variable(features: Any, labels: Any, mode: str) -> Any:
    net = input_layer(features, [column.numeric_column("width")])
    return of_classes(mode, labels, tf.matmul(net, v1.get_variable("mine", [1, 3])))


def constrained(features: Any, labels: Any, mode: str) -> Any:
    return of_classes(mode, labels, layers.dense(features["sizes"], 3, kernel_constraint=tf.keras.constraints.NonNeg()))


def noisy(features: Any, labels: Any, mode: str) -> Any:
    net = layers.dense(features["sizes"], 4)
    net = layers.dropout(net, noise_shape=[1, 4], training=mode == MODE.TRAIN)
    return of_classes(mode, labels, layers.dense(net, 3))


def own_loss(features: Any, labels: Any, mode: str) -> Any:
    one, other = (layers.dense(features["sizes"], 3) for _ in range(2))
    return spec(mode, one, lambda: tf.reduce_mean(one) + tf.reduce_mean(other))


def clipped(features: Any, labels: Any, mode: str) -> Any:
    def update(loss: tf.Tensor) -> Any:
        optimizer = train.AdamOptimizer()
        gradients, variables = zip(*optimizer.compute_gradients(loss))
        gradients, _ = tf.clip_by_global_norm(gradients, 5.0)
        return optimizer.apply_gradients(zip(gradients, variables), train.get_global_step())

    return of_classes(mode, labels, layers.dense(features["sizes"], 3), update)


def drawn(features: Any, labels: Any, mode: str) -> Any:
    net = layers.dense(features["sizes"], 3)
    return of_classes(mode, labels, layers.dense(net + tf.random.normal(tf.shape(net)), 3))


def changed(features: Any, labels: Any, mode: str) -> Any:
    features["width"] = tf.math.log1p(features["width"])
    return of_classes(mode, labels, layers.dense(input_layer(features, [column.numeric_column("width")]), 3))


def reused(features: Any, labels: Any, mode: str) -> Any:
    net = layers.dense(features["sizes"], 2, name="one")
    return of_classes(mode, labels, layers.dense(layers.dense(net, 2, name="one", reuse=True), 3))


def of_two(features: Any, labels: Any, mode: str) -> Any:
    def update(loss: tf.Tensor) -> Any:
        return tf.group(trained(loss), train.AdamOptimizer().minimize(loss))

    return of_classes(mode, labels, layers.dense(features["sizes"], 3), update)


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (variable, "the model_fn, which reads the variable mine without a layer,"),
        (constrained, "the kernel_constraint of the layer dense"),
        (noisy, "the noise_shape of the layer dropout"),
        (own_loss, "a model_fn whose loss is of several outputs of layers"),
        (clipped, "a gradient that the model_fn changes before it applies it, by clip_by_global_norm/"),
        (drawn, "the model_fn, which creates the TensorFlow operation RandomStandardNormal,"),
        (changed, "the feature 'width', which the model_fn computes,"),
        (reused, "the layer of the variable one/bias, which is used twice,"),
        (of_two, r"a model_fn that trains by .*AdagradOptimizer and .*AdamOptimizer, in place of one"),
    ],
)
def test_what_is_between_layers_and_unknown_is_named(function: Any, named: str, tmp_path: Path) -> None:
    def write() -> None:
        called = calls.call(estimator(function, tmp_path), input_fn().element_spec)
        model_fn.write(called, FEATURES, {"network": optimizers.describe(called.optimizer)})

    with pytest.raises(UserCodeError, match=named) as refused:
        write()
    assert "--to kept" in str(refused.value) or "input_fn" in str(refused.value)
