"""One step of the Keras paths: its gradients are those of a tape, for any network."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tfx_estimator.components.trainer.keras.drivers import make_execute
from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.model_fn.step.head import Head, auc
from tfx_estimator.model_fn.step.keras_classifier import BY_SCORE, KerasClassifier
from tfx_estimator.pipeline.config.trainer import TrainerSection

STEPS, EXAMPLES = 3, 6


def _network():
    """A network beyond plain layers: a loop, an embedding, a tf.function, a custom gradient, an unused weight."""
    layers = tf.keras.layers

    class Odd(layers.Layer):
        """A tf.function with a custom gradient."""

        def build(self, input_shape):
            self.scale = self.add_weight("scale", [input_shape[-1]], initializer="ones")
            self.unused = self.add_weight("unused", [2])

        @tf.function
        def scaled(self, inputs):
            if tf.reduce_sum(inputs) > 1e6:
                return inputs
            return inputs * self.scale

        def call(self, inputs):
            @tf.custom_gradient
            def halved(values):
                return values, lambda gradient: 0.5 * gradient

            return self.scaled(halved(inputs))

    chain = [layers.Embedding(7, 4), layers.LSTM(5, unroll=False), Odd(name="odd"), layers.Dense(3)]
    network = tf.keras.Sequential(chain)
    network.build((None, 4))
    return network


def _train(strategy, eagerly: bool):
    tf.keras.utils.set_random_seed(3)
    section = TrainerSection(
        train_steps=STEPS, global_batch_size=EXAMPLES, optimizer={"name": "sgd", "learning_rate": 0.5}
    )
    with strategy.scope():
        classifier = KerasClassifier(_network(), section)
        optimizer = DeclaredOptimizer(section.optimizer, STEPS)
        optimizer._create_all_weights(classifier.trainable_variables)
        classifier.compile(optimizer=optimizer)
    random = np.random.default_rng(5)
    rows, labels = random.integers(0, 7, [EXAMPLES, 4]), random.integers(0, 3, [EXAMPLES])
    batches = tf.data.Dataset.from_tensors(({"x": rows}, labels)).repeat()
    first = [weight.numpy() for weight in classifier.weights]
    if eagerly:
        tf.config.run_functions_eagerly(True)
        try:
            for batch in batches.take(STEPS):
                values = classifier.train_step(batch)
        finally:
            tf.config.run_functions_eagerly(False)
    else:
        split = batches.unbatch().batch(EXAMPLES, drop_remainder=True)
        values = make_execute(classifier, strategy)(
            iter(strategy.experimental_distribute_dataset(split)), tf.constant(STEPS)
        )
    return first, [weight.numpy() for weight in classifier.weights], float(values["loss"])


def test_steps_in_a_graph_equal_eager_steps_with_a_tape():
    one_device = tf.distribute.get_strategy()
    first, eager, eager_loss = _train(one_device, eagerly=True)
    _, graph, graph_loss = _train(one_device, eagerly=False)
    assert graph_loss == pytest.approx(eager_loss, abs=1e-6)
    for one, other in zip(graph, eager):
        np.testing.assert_allclose(one, other, atol=1e-6)
    # All but the unused one were trained.
    changed = [bool(np.abs(before - after).max() > 1e-4) for before, after in zip(first, graph)]
    assert changed.count(False) == 1


def test_weights_multiply_the_losses_and_are_no_input_of_the_network():
    class Sum(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = tf.keras.layers.Dense(1)

        def call(self, inputs):
            return self.dense(tf.concat(list(inputs.values()), axis=1))

    columns = {name: tf.constant([[1.0], [2.0]]) for name in ("a", "b")}
    network = Sum()
    network(columns)
    section = TrainerSection(train_steps=1, global_batch_size=2, optimizer={"name": "sgd", "learning_rate": 0.5})
    classifier = KerasClassifier(network, section, head=Head(True, mean=4.0, deviation=2.0, weight="w"))
    classifier.compile(optimizer=DeclaredOptimizer(section.optimizer, 1))
    labels = tf.constant([5.0, 3.0])
    batch = ({**columns, "w": tf.constant([[3.0], [0.5]])}, labels)
    losses = ((labels - 4) / 2 - network(columns)[:, 0]) ** 2
    weighted = float(tf.reduce_sum(losses * [3.0, 0.5]))
    measured = classifier.test_step(batch)
    assert {name: float(each) for name, each in measured.items()} == pytest.approx({"loss": weighted, "examples": 3.5})
    np.testing.assert_allclose(classifier.answers(columns, ())["predictions"], network(columns) * 2 + 4, rtol=1e-6)
    values = classifier.train_step(batch)
    assert {name: float(each) for name, each in values.items()} == pytest.approx({"loss": weighted / 2})


def test_the_auc_of_two_classes_is_that_of_keras_with_weights_and_in_parts():
    random = np.random.default_rng(1)
    # [examples, 3]; the scores are the first two.
    rows = random.normal(size=[500, 3]).astype("float32")
    labels = (rows[:, 1] - rows[:, 0] + 2 * random.normal(size=500) > 0).astype("int64")
    weights = random.uniform(0, 3, 500).astype("float32")
    network = tf.keras.Sequential([tf.keras.layers.Lambda(lambda rows: rows[:, :2])])
    head = Head(weight="w", is_binary=True)
    classifier = KerasClassifier(network, TrainerSection(train_steps=1), head=head)
    parts = [slice(0, 200), slice(200, 500)]
    sums = [classifier.test_step(({"x": rows[part], "w": weights[part]}, labels[part])) for part in parts]
    by_keras = tf.keras.metrics.AUC(200)
    by_keras.update_state(labels, tf.nn.softmax(rows[:, :2])[:, 1], weights)
    found = auc(sum(each[BY_SCORE].numpy() for each in sums))
    assert found == pytest.approx(float(by_keras.result()), abs=1e-6)
    assert 0.6 < found < 0.9
