"""Devices of layers, cuts of a network into stages, and the order of the stages' work.

tests/equivalence covers their training.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tfx_estimator.model_fn.networks import cifar_resnet9
from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.model_fn.parallel.division import Division, find_division
from tfx_estimator.model_fn.parallel.pipelining import Work, schedule
from tfx_estimator.model_fn.parallel.stages import balanced, chain_of, costs_of, numbers_of
from tfx_estimator.model_fn.step.keras_classifier import KerasClassifier
from tfx_estimator.pipeline.base.errors import DeclarationError, UserCodeError
from tfx_estimator.pipeline.config.parallel import PipelineParallel
from tfx_estimator.pipeline.config.trainer import TrainerSection

OPTION = "trainer.model_parallel"


def test_the_longest_pattern_that_fits_decides_and_each_fits_a_layer():
    found = Division(OPTION, ("cpu:0", "cpu:1", "cpu:2"), {"*": 1, "dense*": 2, "dense1": 0, "d*": 1})
    assert [found.device_of(name)[-1] for name in ("conv", "dense1", "dense7", "drop")] == ["1", "0", "2", "1"]
    assert Division(OPTION, ("cpu:3", "cpu:1"), {"a": 1}).device_of("b") == "/device:CPU:3"
    network = tf.keras.Sequential([tf.keras.layers.Dense(3, name="dense1")])
    found.check(network)
    with pytest.raises(UserCodeError, match="no layer 'dense2'"):
        Division(OPTION, ("cpu:0", "cpu:1"), {"dense2": 1}).check(network)


def test_missing_devices_are_refused():
    with pytest.raises(DeclarationError, match=r"trainer.model_parallel.devices asks for gpu:63"):
        Division(OPTION, ("cpu:0", "gpu:63"), {"a": 1})


@pytest.mark.parametrize(("stages", "parts"), [(2, 1), (2, 4), (3, 2), (4, 7)])
def test_a_stage_works_on_each_part_forward_and_back_and_is_never_far_ahead(stages, parts):
    order = schedule(stages, parts)
    assert len(order) == len(set(order)) == 2 * stages * parts
    place = {work: number for number, work in enumerate(order)}
    for stage in range(stages):
        own = [work for work in order if work.stage == stage]
        for back in (False, True):
            assert [work.part for work in own if work.back == back] == list(range(parts))
        ahead = 0
        for work in own:
            ahead += -1 if work.back else 1
            assert 0 <= ahead <= stages - stage
        for part in range(parts):
            if stage:
                assert place[Work(stage - 1, part, False)] < place[Work(stage, part, False)]
                assert place[Work(stage, part, True)] < place[Work(stage - 1, part, True)]


@pytest.mark.parametrize(("stages", "parts"), [(2, 1), (2, 8), (3, 5), (4, 4)])
def test_equal_stages_wait_for_the_ideal_bubble(stages, parts):
    ended: dict[Work, int] = {}
    free = [0] * stages
    for work in schedule(stages, parts):
        before = Work(work.stage + (1 if work.back else -1), work.part, work.back)
        begin = max(free[work.stage], ended.get(before, 0))
        # A backward pass takes twice as long as a forward pass.
        ended[work] = free[work.stage] = begin + (2 if work.back else 1)
    share = 1 - 3 * parts / max(ended.values())
    section = PipelineParallel(stages=stages, microbatches=parts)
    assert share == pytest.approx(section.ideal_bubble)


@pytest.mark.parametrize(
    ("costs", "count", "numbers"),
    [
        ([1, 1, 1, 1], 2, [0, 0, 1, 1]),
        ([9, 1, 1, 1], 2, [0, 1, 1, 1]),
        ([1, 2, 3, 9], 3, [0, 0, 1, 2]),
        ([0, 0, 5], 3, [0, 1, 2]),
    ],
)
def test_the_cost_of_the_most_expensive_stage_is_minimal(costs, count, numbers):
    assert balanced(costs, count) == numbers


def test_layers_that_no_stage_names_belong_to_the_previous_stage():
    names = ["input", "conv1", "pool1", "flatten", "dense1", "dense2"]
    assert numbers_of(names, [["conv1"], ["dense*"]]) == [0, 0, 0, 0, 1, 1]
    with pytest.raises(UserCodeError, match=r"(?s)no layer 'conv7'.*input, conv1, pool1"):
        numbers_of(names, [["conv1"], ["conv7"]])
    with pytest.raises(UserCodeError, match=r"(?s)not in the order of the layers.*conv1 in stage 1"):
        numbers_of(names, [["dense*"], ["conv1"]])
    with pytest.raises(UserCodeError, match="the network has 2 layers"):
        balanced([1, 1], 3)


def test_a_network_that_is_no_chain_is_refused_with_the_reason():
    layers = tf.keras.layers
    image = tf.keras.Input((8, 8, 1))
    conv = layers.Conv2D(4, 3, name="conv")(image)
    flat = layers.Flatten(name="flatten")(tf.nn.relu(conv, name="active"))
    chain = tf.keras.Model(image, layers.Dense(3, name="logits")(flat))
    links = chain_of(chain)
    assert [link.layer.name for link in links[::2]] == ["conv", "flatten"]
    value = tf.random.normal([2, 8, 8, 1])
    outputs = value
    for link in links:
        outputs = link(outputs, training=True)
    tf.debugging.assert_near(outputs, chain(value))
    costs = costs_of(links, tf.zeros([1, 8, 8, 1]))
    assert costs[0] > costs[-1] > costs[2] == 0

    branched = tf.keras.Model(image, layers.Dense(3)(flat + layers.Dense(144)(flat)))

    class Own(tf.keras.Model):
        def call(self, inputs):
            return inputs

    twice = layers.Dense(3, name="twice")
    cases = [
        (branched, "it is not a chain"),
        (Own(), "a class of its own, Own"),
        (cifar_resnet9(3), "stem normalises by the statistics of a batch"),
        (tf.keras.Model(inputs := tf.keras.Input((3,)), twice(twice(inputs))), "twice is called more than once"),
    ]
    for model, reason in cases:
        with pytest.raises(UserCodeError, match=reason):
            chain_of(model)


def test_the_losses_of_layers_equal_those_of_the_whole_network():
    layers, l2 = tf.keras.layers, tf.keras.regularizers.L2(0.01)

    def make():
        tf.keras.backend.reset_uids()
        tf.keras.utils.set_random_seed(3)
        return tf.keras.Sequential(
            [
                layers.Embedding(6, 4, input_length=2, name="embedding"),
                layers.Flatten(),
                layers.Dense(5, kernel_regularizer=l2, activity_regularizer=l2, name="dense"),
                layers.Dense(3, name="logits"),
            ]
        )

    random = np.random.default_rng(5)
    batch = {"x": random.integers(0, 6, [7, 2])}, random.integers(0, 3, [7])
    found = []
    # On one device: logical ones must be configured before TensorFlow's first op.
    for parallel in ({}, {"stages": [["embedding"], ["logits"]], "microbatches": 3, "devices": ["cpu:0", "cpu:0"]}):
        section = TrainerSection(
            train_steps=9,
            global_batch_size=7,
            optimizer={"name": "sgd", "weight_decay": 0.1},
            pipeline_parallel=parallel or None,
        )
        division = find_division(section, make, {"x": tf.TensorSpec([1, 2], tf.int64)})
        network = make()
        network.build((None, 2))
        model = KerasClassifier(network, section, division)
        model.compile(optimizer=DeclaredOptimizer(section.optimizer, 9))
        values = tf.function(model.train_step)(batch)
        found.append([*map(float, values.values()), *(each.numpy() for each in model.trainable_variables)])
    for whole, divided in zip(*found):
        np.testing.assert_allclose(divided, whole, atol=1e-6)
