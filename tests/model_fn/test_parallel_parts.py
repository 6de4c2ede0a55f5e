"""Parts of a batch at the same time; that every path trains so under every strategy is shown in tests/equivalence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.model_fn.test_accumulation import comes_after, train_step
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.errors import UserCodeError

pytestmark = pytest.mark.unit


def test_parts_wait_for_nothing_of_each_other():
    import tensorflow as tf

    from tfx_estimator.model_fn.accumulation import Computed, in_turn
    from tfx_estimator.model_fn.parallel_parts import in_parallel

    begun, done, firsts = [], [], []

    def compute(part):
        begun.append(part.features["x"])
        done.append(tf.reduce_sum(part.features["x"]) * tf.cast(part.share, tf.float32))
        firsts.append(part.first)
        return Computed(done[-1], tf.cast(tf.size(part.labels), tf.float32), [None])

    graph = tf.Graph()
    with graph.as_default():
        batch = {"x": tf.compat.v1.placeholder(tf.float32, [None])}, tf.compat.v1.placeholder(tf.int64, [None])
        whole = in_turn(in_parallel(compute, 3), *batch, 2)
    assert firsts == [True, False, False, False, False, False]
    for group in (range(3), range(3, 6)):
        for one in group:
            assert not any(comes_after(begun[one].op, done[other].op) for other in group)
    # The second three come when the first are done.
    assert all(comes_after(begun[later].op, done[earlier].op) for later in range(3, 6) for earlier in range(3))
    with tf.compat.v1.Session(graph=graph) as session:
        values = np.arange(7.0)
        found = session.run([whole.loss, whole.hits], {batch[0]["x"]: values, batch[1]: np.ones(7)})
    # 3 and 4 of 7 examples, in parts of 1, 1, 1 and of 1, 1, 2: each times its share of all seven.
    assert found == pytest.approx([(0 + 1 + 2 + 3 + 4 + 2 * (5 + 6)) / 7, 7])


@pytest.mark.parametrize(("parts", "parallel"), [(1, 2), (1, 7), (2, 3)])
def test_a_step_in_parallel_parts_is_that_of_the_whole_batch(parts, parallel):
    one, reported = train_step(1, 7)
    other, of_parts = train_step(parts, 7, parallel_parts=parallel)
    assert of_parts == pytest.approx(reported, abs=1e-6)
    assert int(other.optimizer.iterations) == 1
    for expected, found in zip(one.optimizer.variables(), other.optimizer.variables()):
        np.testing.assert_allclose(found, expected, atol=1e-6, err_msg=expected.name)


@pytest.mark.parametrize(
    ("cpus", "declared", "parts"),
    [
        (4, {"parallel_parts": "auto"}, 4),
        (1, {"parallel_parts": "auto"}, 1),
        (4, {}, 1),
        (4, {"parallel_parts": 3}, 3),
        (8, {"parallel_parts": "auto", "distribution": {"train": "mirrored:4"}}, 2),
        (8, {"parallel_parts": "auto", "threads": {"inter_op": 3}}, 3),
        (64, {"parallel_parts": "auto", "global_batch_size": 32, "gradient_accumulation": 2}, 16),
        # Where there can be none.
        (4, {"parallel_parts": "auto", "xla": True}, 1),
        (4, {"parallel_parts": "auto", "xla": "auto"}, 1),
        (4, {"parallel_parts": "auto", "model": "cifar_resnet9"}, 1),
        (4, {"parallel_parts": "auto", "model": None, "module_file": "mine.py"}, 1),
        (4, {"parallel_parts": "auto", "pipeline_parallel": {"stages": 2, "microbatches": 2}}, 1),
    ],
)
def test_auto_is_a_part_for_each_cpu_of_a_replica_where_there_can_be_parts(monkeypatch, cpus, declared, parts):
    from tfx_estimator.model_fn import parallel_parts

    monkeypatch.delenv("TF_NUM_INTEROP_THREADS", raising=False)
    monkeypatch.setattr(parallel_parts, "available_cpus", lambda: cpus)
    section = TrainerSection.parse_obj({"model": "mnist_cnn", "train_steps": 9, **declared})
    assert parallel_parts.parts_here(section) == parts
    several = section.is_in_parallel_parts
    assert section.intra_op == (1 if several else None)
    assert ("TF_NUM_INTRAOP_THREADS" in section.environment) == several


def test_auto_keeps_to_the_ops_that_the_environment_allows_at_the_same_time(monkeypatch):
    from tfx_estimator.model_fn import parallel_parts

    monkeypatch.setattr(parallel_parts, "available_cpus", lambda: 8)
    section = TrainerSection(train_steps=9, parallel_parts="auto", threads={"intra_op": 2})
    for said, parts in (("3", 3), ("0", 8), ("many", 8)):
        monkeypatch.setenv("TF_NUM_INTEROP_THREADS", said)
        assert parallel_parts.parts_here(section) == parts
    assert section.intra_op == 2


def _network(kind: str) -> Any:
    import tensorflow as tf

    layers = tf.keras.layers
    norm = layers.BatchNormalization(name="norm")
    if kind == "frozen":
        norm.trainable = False
    if kind == "adapted":
        norm = layers.Normalization(name="norm")
        norm.adapt(np.arange(12.0).reshape(6, 2))
    if kind == "counting":
        norm = _counting()
    network = tf.keras.Sequential([tf.keras.Sequential([norm]), layers.Dropout(0.5), layers.Dense(3)])
    network.build((None, 2))
    return network


def _counting() -> Any:
    import tensorflow as tf

    class Counting(tf.keras.layers.Layer):
        """Counts the examples that it has seen."""

        def build(self, shape: Any) -> None:
            """Makes the count."""
            self.count = self.add_weight("count", [], tf.float32, initializer="zeros", trainable=False)

        def call(self, inputs: Any) -> Any:
            """Counts."""
            self.count.assign_add(tf.cast(tf.shape(inputs)[0], tf.float32))
            return inputs

    return Counting(name="norm")


@pytest.mark.parametrize(
    ("kind", "layer"),
    [("", "norm (BatchNormalization)"), ("counting", "norm (Counting)"), ("frozen", ""), ("adapted", "")],
)
def test_a_layer_that_follows_batches_is_told_from_one_that_does_not(kind, layer):
    from tfx_estimator.model_fn.parallel_parts import follows_batches

    assert follows_batches(_network(kind)) == layer


def test_a_network_that_follows_batches_is_refused_and_computed_whole_by_auto(monkeypatch):
    from tfx_estimator.model_fn import parallel_parts
    from tfx_estimator.model_fn.keras_classifier import KerasClassifier

    monkeypatch.setattr(parallel_parts, "available_cpus", lambda: 4)
    monkeypatch.delenv("TF_NUM_INTEROP_THREADS", raising=False)
    with pytest.raises(UserCodeError) as caught:
        KerasClassifier(_network(""), TrainerSection(train_steps=9, parallel_parts=2))
    assert "trainer.parallel_parts: 2, and the layer norm (BatchNormalization)" in str(caught.value)
    assert "set trainer.parallel_parts: 1" in str(caught.value)
    auto = TrainerSection(train_steps=9, model="mine:net", parallel_parts="auto")
    assert KerasClassifier(_network(""), auto)._parallel == 1
    assert KerasClassifier(_network("frozen"), auto)._parallel == 4
    (notice,) = parallel_parts.whole_notices(auto, parallel_parts.having("norm (BatchNormalization)"))
    assert "auto makes no parts of a batch, as mine:net has the layer norm (BatchNormalization)" in notice
    # Nothing is slower by it, or nothing was asked for.
    for other in ({"parallel_parts": 1}, {"parallel_parts": "auto", "threads": {"intra_op": 1}}):
        assert parallel_parts.whole_notices(TrainerSection(train_steps=9, **other), "is one") == []


def test_a_state_of_an_estimators_graph_that_only_a_step_shows_is_refused(tmp_path):
    import tensorflow as tf

    from tfx_estimator.model_fn.classifier import make_model_fn

    model_fn = make_model_fn(lambda classes: tf.keras.Sequential([_counting(), tf.keras.layers.Dense(classes)]))
    params = {
        "num_classes": 3,
        "train_steps": 2,
        "global_batch_size": 6,
        "seed": 1,
        "optimizer": {"name": "sgd", "learning_rate": 0.1, "schedule": "constant"},
        "parallel_parts": 2,
    }
    estimator = tf.estimator.Estimator(model_fn, str(tmp_path), params=params)
    batch = {"image": np.ones([6, 2], np.float32)}, np.ones([6], np.int64)
    with pytest.raises(UserCodeError, match=r"parallel_parts: 2, and the layer norm \(Counting\) of the network"):
        estimator.train(lambda: tf.data.Dataset.from_tensors(batch).repeat(), steps=1)


def test_what_is_no_network_is_refused_but_by_auto():
    from tfx_estimator.model_fn.own_step import refuse_step_options

    for parts in (1, "auto"):
        refuse_step_options(TrainerSection(train_steps=9, model="mine:net", parallel_parts=parts), "is compiled")
    with pytest.raises(UserCodeError, match="parallel_parts: 2, and 'mine:net' is compiled: its batches would stay"):
        refuse_step_options(TrainerSection(train_steps=9, model="mine:net", parallel_parts=2), "is compiled")
