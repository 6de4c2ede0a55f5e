"""The declared optimizer, in an Estimator's graph and in Keras, against the classes of tf.keras.optimizers."""

from __future__ import annotations

import contextlib
from typing import Any, Optional

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.distribute.sharded_variable import ShardedVariable

from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.model_fn.optim.schedules import learning_rate
from tfx_estimator.model_fn.optim.update_rules import RULES
from tfx_estimator.model_fn.step.objective import gradients_of
from tfx_estimator.pipeline.config.optimizer import Optimizer

STEPS = 6
RATE = 0.05
INPUTS = np.random.default_rng(1).normal(size=(STEPS, 8, 4)).astype(np.float32)
TARGETS = np.random.default_rng(2).normal(size=(STEPS, 8, 3)).astype(np.float32) * 10
FIRST = [
    np.random.default_rng(3 + n).normal(size=shape).astype(np.float32) for n, shape in enumerate([(4, 5), (5,), (5, 3)])
]

# Declared options -> Keras's.
CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"name": "sgd"}, {}),
    ({"name": "sgd", "momentum": 0.8, "nesterov": True}, {"momentum": 0.8, "nesterov": True}),
    ({"name": "rmsprop"}, {}),
    ({"name": "rmsprop", "rho": 0.8, "momentum": 0.5, "centered": True, "epsilon": 0.01},
     {"rho": 0.8, "momentum": 0.5, "centered": True, "epsilon": 0.01}),
    ({"name": "adam"}, {}),
    ({"name": "adam", "beta_1": 0.8, "beta_2": 0.9, "epsilon": 0.01, "amsgrad": True},
     {"beta_1": 0.8, "beta_2": 0.9, "epsilon": 0.01, "amsgrad": True}),
    ({"name": "adamw"}, {}),
    ({"name": "adamw", "decoupled_weight_decay": 0.1}, {"weight_decay": 0.1}),
    ({"name": "adadelta", "learning_rate": 1.0, "rho": 0.9}, {"learning_rate": 1.0, "rho": 0.9}),
    ({"name": "adagrad"}, {}),
    ({"name": "adagrad", "initial_accumulator_value": 0.0, "epsilon": 0.1},
     {"initial_accumulator_value": 0.0, "epsilon": 0.1}),
    ({"name": "adamax", "decoupled_weight_decay": 0.1}, {"weight_decay": 0.1}),
    ({"name": "adafactor"}, {}),
    ({"name": "adafactor", "beta_2_decay": -0.5, "epsilon_2": 0.1, "clip_threshold": 0.5},
     {"beta_2_decay": -0.5, "epsilon_2": 0.1, "clip_threshold": 0.5}),
    ({"name": "nadam", "beta_1": 0.8}, {"beta_1": 0.8}),
    ({"name": "ftrl"}, {}),
    ({"name": "ftrl", "l1_regularization_strength": 0.01, "l2_regularization_strength": 0.02, "beta": 0.1,
      "l2_shrinkage_regularization_strength": 0.03, "learning_rate_power": -0.4},
     {"l1_regularization_strength": 0.01, "l2_regularization_strength": 0.02, "beta": 0.1,
      "l2_shrinkage_regularization_strength": 0.03, "learning_rate_power": -0.4}),
    ({"name": "lion", "beta_2": 0.95}, {"beta_2": 0.95}),
    ({"name": "sgd", "clip_norm": 0.5}, {"clipnorm": 0.5}),
    ({"name": "adam", "global_clip_norm": 0.5}, {"global_clipnorm": 0.5}),
    ({"name": "sgd", "clip_value": 0.1}, {"clipvalue": 0.1}),
]  # fmt: skip
CLASSES = {
    "sgd": "SGD",
    "rmsprop": "RMSprop",
    "adamw": "AdamW",
    **{
        name: name.capitalize()
        for name in ("adam", "adadelta", "adagrad", "adamax", "adafactor", "nadam", "ftrl", "lion")
    },
}


def loss_of(weights, inputs, targets):
    return tf.reduce_mean((tf.tanh(inputs @ weights[0] + weights[1]) @ weights[2] - targets) ** 2)


def in_keras(optimizer) -> list[np.ndarray]:
    """Updates eagerly: within a tf.function, Keras 2.15's Nadam counts its steps wrong."""
    weights = [tf.Variable(first) for first in FIRST]
    for inputs, targets in zip(INPUTS, TARGETS):
        with tf.GradientTape() as tape:
            loss = loss_of(weights, inputs, targets)
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
    return [weight.numpy() for weight in weights]


def in_graph(section: Optimizer, momentum: Optional[float] = None) -> list[np.ndarray]:
    """Updates in a graph like an Estimator; or by the momentum of TensorFlow 1."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        step = tf.compat.v1.train.create_global_step()
        weights = [
            tf.compat.v1.get_variable(f"w{n}", initializer=first, use_resource=True) for n, first in enumerate(FIRST)
        ]
        inputs, targets = (tf.gather(tf.constant(values), step) for values in (INPUTS, TARGETS))
        pairs = list(zip(gradients_of(loss_of(weights, inputs, targets), weights), weights))
        if momentum is None:
            optimizer = DeclaredOptimizer(section, STEPS)
            optimizer.iterations = step
            train = optimizer.apply_gradients(pairs)
        else:
            rate = learning_rate(section, STEPS, step)
            train = tf.compat.v1.train.MomentumOptimizer(rate, momentum).apply_gradients(pairs, step)
        session.run(tf.compat.v1.global_variables_initializer())
        for number in range(STEPS):
            assert session.run(step) == number
            session.run(train)
        return session.run(weights)


@pytest.mark.parametrize(("declared", "options"), CASES, ids=lambda values: " ".join(map(str, values.values())))
def test_the_update_equals_keras_on_every_path(declared, options):
    section = Optimizer(**{"learning_rate": RATE, "schedule": "constant", **declared})
    estimator, ours = in_graph(section), in_keras(DeclaredOptimizer(section, STEPS))
    keras = in_keras(getattr(tf.keras.optimizers, CLASSES[section.name])(**{"learning_rate": RATE, **options}))
    for one, other, third, first in zip(estimator, ours, keras, FIRST):
        np.testing.assert_allclose(one, other, atol=1e-6)
        np.testing.assert_allclose(one, third, atol=1e-5)
        assert np.abs(one - first).max() > 1e-3


def test_every_optimizer_is_tried():
    assert {declared["name"] for declared, _ in CASES} | {"momentum"} == {*RULES}


def test_momentum_equals_tensorflow_1_to_the_bit():
    section = Optimizer(name="momentum", learning_rate=RATE)
    for one, other in zip(in_graph(section), in_graph(section, momentum=section.resolved()["momentum"])):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", [declared["name"] for declared, options in CASES if not options])
def test_a_rate_of_0_changes_nothing(name):
    values = {"name": name, "schedule": "piecewise", "boundaries": [1], "values": [0.0, 0.0]}
    section = Optimizer(**values)
    for weights in (in_graph(section), in_keras(DeclaredOptimizer(section, STEPS))):
        for one, first in zip(weights, FIRST):
            np.testing.assert_array_equal(one, first)


def trained(optimizer) -> list[np.ndarray]:
    """Returns the weights of a small network after some steps."""
    tf.keras.utils.set_random_seed(3)
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Dense(5, activation="tanh"), layers.Dense(3)])
    generator = np.random.default_rng(1)
    inputs = tf.constant(generator.normal(size=(STEPS, 8, 4)).astype(np.float32))
    targets = tf.constant(generator.normal(size=(STEPS, 8, 3)).astype(np.float32))
    model.build((None, 4))

    @tf.function
    def train(values, wanted):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(values) - wanted) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    for step in range(STEPS):
        train(inputs[step], targets[step])
    return model.get_weights()


def declared(**values):
    return DeclaredOptimizer(Optimizer(**values), STEPS)


def test_in_a_function_the_update_equals_keras_with_a_schedule():
    rate = tf.keras.optimizers.schedules.CosineDecay(0.05, STEPS)
    ours = trained(declared(name="adam", learning_rate=0.05, schedule="cosine"))
    for one, other in zip(ours, trained(tf.keras.optimizers.Adam(rate))):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_gradients_of_layers_on_several_devices_stay_there():
    variable = tf.Variable(tf.zeros([256]))
    optimizer = declared(name="sgd", learning_rate=1.0, schedule="constant")

    @tf.function
    def step():
        # The graph is only built, for devices that do not exist.
        with tf.device("/device:GPU:1"):
            gradient = tf.sin(tf.ones([256]))
        optimizer.apply_gradients([(gradient, variable)])

    (gradient,) = (op for op in step.get_concrete_function().graph.get_operations() if op.type == "Sin")
    # None is without a device, such as a sum over one replica, which would be on the first.
    assert [op.type for op in gradient.outputs[0].consumers()] == ["ResourceApplyGradientDescent"]


def test_an_optimizer_can_be_written_down():
    optimizer = declared(name="adam", learning_rate=0.05, schedule="cosine")
    again = tf.keras.optimizers.deserialize(tf.keras.optimizers.serialize(optimizer), use_legacy_optimizer=True)
    for one, other in zip(trained(optimizer), trained(again)):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("clipping", ["clip_norm", "global_clip_norm", "clip_value"])
def test_a_variable_in_parts_is_clipped_by_the_norm_of_all_of_it(clipping):
    gradients = [np.arange(1, 33, dtype=np.float32).reshape(8, 4), np.full([8, 4], 0.01, np.float32), np.ones(3)]

    def step(cut: bool) -> list[np.ndarray]:
        wholes, pairs = [], []
        # The last is whole in any case; the two others have the same name.
        for gradient, rows in zip(gradients, ((3, 5), (4, 4), ())):
            split = np.split(gradient, np.cumsum(rows[:-1])) if cut and rows else [gradient]
            parts = [tf.Variable(np.zeros_like(each, np.float32), name=f"part_{i}") for i, each in enumerate(split)]
            wholes.append(ShardedVariable(parts) if len(parts) > 1 else parts[0])
            pairs += zip(map(tf.constant, split), parts)
        optimizer = declared(name="sgd", learning_rate=1.0, schedule="constant", **{clipping: 1.0})
        optimizer.apply_gradients([(tf.cast(gradient, tf.float32), part) for gradient, part in pairs])
        return [tf.convert_to_tensor(each).numpy() for each in wholes]

    whole, parts = step(cut=False), step(cut=True)
    for one, other in zip(whole, parts):
        np.testing.assert_allclose(other, one, rtol=1e-6)
    if clipping == "clip_norm":
        assert np.linalg.norm(parts[0]) == pytest.approx(1, rel=1e-5)
        # Within the limit, though it is not with the other of its name.
        np.testing.assert_allclose(parts[1], -gradients[1], rtol=1e-6)


# One row twice in a batch, one in a single batch, and one in none.
ROWS = [[0, 2, 2], [3, 0, 0], [2, 3, 2]]
TABLE = np.random.default_rng(9).normal(size=(6, 3)).astype(np.float32)


def table_in(where: str, optimizer: Any, first: np.ndarray = TABLE, *, whole: bool = False) -> np.ndarray:
    """Trains the rows of an embedding; `whole`: by gradients of all rows."""

    def pairs(table: Any, rows: Any) -> list[Any]:
        with tf.GradientTape() if tf.executing_eagerly() else contextlib.nullcontext() as tape:
            loss = tf.reduce_sum((tf.gather(table, rows) - 2.0) ** 2) + tf.reduce_sum(tf.gather(table, rows[:1]))
        gradient = tape.gradient(loss, table) if tape else tf.gradients(loss, table)[0]
        return [(tf.convert_to_tensor(gradient) if whole else gradient, table)]

    if where == "eagerly":
        table = tf.Variable(first)
        for rows in ROWS:
            optimizer().apply_gradients(pairs(table, tf.constant(rows)))
        return table.numpy()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        table = tf.compat.v1.get_variable("table", initializer=first, use_resource=True)
        batch, made = tf.compat.v1.placeholder(tf.int32, [3]), optimizer()
        if isinstance(made, DeclaredOptimizer):
            made.iterations = tf.compat.v1.train.create_global_step()
        train = made.apply_gradients(pairs(table, batch))
        session.run(tf.compat.v1.global_variables_initializer())
        for rows in ROWS:
            session.run(train, {batch: rows})
        return session.run(table)


@pytest.mark.parametrize(
    ("declared", "in_tensorflow_1"),
    [
        ({"name": "sgd"}, lambda: tf.compat.v1.train.GradientDescentOptimizer(RATE)),
        ({"name": "adagrad"}, lambda: tf.compat.v1.train.AdagradOptimizer(RATE, 0.1)),
        ({"name": "ftrl", "l1_regularization_strength": 0.01, "l2_shrinkage_regularization_strength": 0.03},
         lambda: tf.compat.v1.train.FtrlOptimizer(
             RATE, l1_regularization_strength=0.01, l2_shrinkage_regularization_strength=0.03)),
    ],
    ids=["sgd", "adagrad", "ftrl"],
)  # fmt: skip
def test_only_the_rows_of_a_batch_are_updated_as_in_tensorflow_1(declared, in_tensorflow_1):
    section = Optimizer(**{"learning_rate": RATE, "schedule": "constant", **declared})
    expected = table_in("graph", in_tensorflow_1)
    for where in ("graph", "eagerly"):
        one = DeclaredOptimizer(section, len(ROWS))
        found = table_in(where, lambda one=one: one)
        np.testing.assert_allclose(found, expected, atol=1e-6)
        np.testing.assert_array_equal(found[[1, 4, 5]], TABLE[[1, 4, 5]])
        assert np.abs(found - TABLE)[[0, 2, 3]].min() > 1e-3


@pytest.mark.parametrize("name", [*RULES])
@pytest.mark.parametrize("clipping", [{}, {"clip_norm": 0.5}, {"global_clip_norm": 0.5}, {"clip_value": 0.3}], ids=str)
def test_the_rows_of_an_embedding_are_clipped_as_all_of_it(name, clipping):
    # By Ftrl for all rows, those without a gradient would become 0 at once: TensorFlow leaves them.
    first = TABLE * (name != "ftrl")
    section = Optimizer(name=name, learning_rate=RATE, schedule="constant", **clipping)
    both = []
    for whole in (False, True):
        one = DeclaredOptimizer(section, len(ROWS))
        both.append(table_in("eagerly", lambda one=one: one, first, whole=whole))
    np.testing.assert_allclose(*both, atol=1e-6)
    assert np.abs(both[0] - first).max() > 1e-5


def test_a_step_compiled_by_xla_updates_an_embedding():
    section = Optimizer(name="adagrad", learning_rate=RATE, schedule="constant")
    found = []
    for compiled in (False, True):
        table, optimizer = tf.Variable(TABLE), DeclaredOptimizer(section, len(ROWS))

        @tf.function(jit_compile=compiled)
        def train(rows, table=table, optimizer=optimizer):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum((tf.gather(table, rows) - 2.0) ** 2)
            optimizer.apply_gradients([(tape.gradient(loss, table), table)])

        for rows in ROWS:
            train(tf.constant(rows))
        found.append(table.numpy())
    np.testing.assert_allclose(*found, atol=1e-6)
    np.testing.assert_array_equal(found[1][[1, 4, 5]], TABLE[[1, 4, 5]])


def test_a_constrained_embedding_is_updated_as_a_whole():
    section = Optimizer(name="adagrad", learning_rate=RATE, schedule="constant")
    table = tf.Variable(TABLE, constraint=tf.keras.constraints.UnitNorm(axis=1))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table, [0, 0, 2]))
    DeclaredOptimizer(section, 1).apply_gradients([(tape.gradient(loss, table), table)])
    np.testing.assert_allclose(np.linalg.norm(table.numpy(), axis=1), 1.0, atol=1e-5)
