"""`trainer.seed` seeds a user's Estimators, and a resumed training draws new random numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.components.trainer.conftest import each_path
from tests.root import answers
from tfx_estimator.components.trainer import seeds
from tfx_estimator.pipeline.config.trainer import TrainerSection

HERE = Path(__file__).resolve().parent
PROCESS = HERE / "seeds_process.py"


def digests(seed: int, answers: Callable[..., list[Any]] = answers) -> dict[str, list[str]]:
    return {name: twice for name, *twice in answers(str(PROCESS), str(seed))}


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(180)
def test_each_training_of_a_process_gives_the_same_bits(codes):
    found = digests(1, codes.answers)
    assert sorted(found) == [
        f"{strategy} {by}" for strategy in ("mirrored", "one_device") for by in ("by_keras", "by_model_fn")
    ]
    for name, (first, second) in found.items():
        assert first == second, name
    assert len({first for first, _ in found.values()}) == len(found)


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(360)
def test_another_process_gives_the_same_bits_only_with_the_same_seed():
    one, again, other = (digests(seed) for seed in (1, 1, 2))
    assert one == again
    assert not {digest for each in one.values() for digest in each} & {
        digest for each in other.values() for digest in each
    }


@pytest.mark.cluster
@pytest.mark.timeout(300)
@each_path("estimator")
def test_a_resumed_training_repeats_no_random_numbers(train, tmp_path, path):
    file = tmp_path / "drawn"
    section = {"model": "small:drawing", "params": {"file": str(file)}, "distribution": {"max_restarts": 0}}
    for steps in (3, 6):
        _, run = train(path, steps, save_checkpoints_steps=3, **section)
        assert run.get_float_custom_property("first_step") == steps - 3
        # Each layer draws in each step.
        drawn = file.read_text().split()
        assert len(drawn) == len(set(drawn)) == 3 * steps


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("path", "strategy", "steps"),
    [
        *((path, "multi_worker_mirrored:2", 6) for path in ("estimator", "keras", "keras_custom_loop")),
        # Each task finishes its current step.
        ("estimator", {"strategy": "parameter_server", "workers": 2, "ps": 1}, None),
    ],
    ids=["estimator", "keras", "keras_custom_loop", "parameter_server"],
)
def test_two_workers_draw_different_random_numbers(train, tmp_path, path, strategy, steps):
    file = tmp_path / "drawn"
    distribution = {"train": strategy, "max_restarts": 0}
    train(path, 3 if steps else 200, model="small:drawing", params={"file": str(file)}, distribution=distribution)
    # Each layer draws in each step in both workers.
    drawn = file.read_text().split()
    assert len(drawn) == len(set(drawn))
    assert len(drawn) == 3 * steps if steps else len(drawn) >= 3 * 200


def test_at_step_0_layers_draw_unchanged_and_later_differently_at_each_step():
    section, layers = TrainerSection(model="m:f", train_steps=9, seed=5), tf.keras.layers
    images = tf.constant(np.random.default_rng(1).uniform(100, 150, size=(4, 8, 8, 3)).astype(np.float32))

    def draw(step: int, again: bool = True, worker: int = 0) -> list[list[bytes]]:
        seeds.begin(section)
        model = tf.keras.Sequential(
            [layers.Dropout(0.5), layers.RandomBrightness(0.3, seed=3), layers.RandomContrast(0.5)]
        )
        model.build(images.shape)
        if again:
            seeds.resume(section, model, step, worker)
        steps = tf.function(lambda: [layer(images, training=True) for layer in model.layers])
        return [[np.array(each).tobytes() for each in steps()] for _ in range(2)]

    assert draw(0) == draw(0, again=False)
    assert draw(7) == draw(7)
    places = [*((step, 0) for step in (0, 7, 8, 1_000_000)), (0, 1), (7, 1), (1_000_000, 127)]
    found = [each for step, worker in places for drawn in draw(step, worker=worker) for each in drawn]
    assert len(set(found)) == len(found) == len(places) * 2 * 3


@pytest.mark.parametrize("checkpoint_format", ["checkpoint", "saver"])
def test_the_step_is_found_in_either_checkpoint_of_a_compiled_model(tmp_path, checkpoint_format):
    model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(4,))])
    model.compile(tf.keras.optimizers.legacy.SGD(0.1), "mse")
    estimator = tf.keras.estimator.model_to_estimator(
        model, model_dir=str(tmp_path), checkpoint_format=checkpoint_format
    )
    batch = np.ones((2, 4), np.float32), np.ones((2, 2), np.float32)
    estimator.train(lambda: tf.data.Dataset.from_tensors(batch).repeat(), steps=3)
    assert seeds._step_of(estimator.latest_checkpoint()) == 3
    assert seeds._step_of(None) == 0
