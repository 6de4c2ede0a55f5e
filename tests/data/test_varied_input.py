"""The images that input_fn varies: in whatever batches and pipelines, and after a restart, the same."""

from __future__ import annotations

import numpy as np
import pytest

from tests.data.input_pipelines import TOTAL, context
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.trainer import TrainerSection

pytestmark = pytest.mark.unit

# The examples' images are of a single colour: what tells them apart is added.
AUGMENT = TrainerSection.parse_obj({"augment": [{"gaussian_noise": {"stddev": 0.1}}, "random_brightness"]}).augment


def varied(dataset, batches: int) -> list[tuple[int, bytes]]:
    """Label and image of each example."""
    return [
        (int(number), image.tobytes())
        for features, label in dataset.take(batches).as_numpy_iterator()
        for image, number in zip(features["image"], label, strict=True)
    ]


@pytest.fixture(scope="module")
def alone(reader) -> list[tuple[int, bytes]]:
    """More than two epochs of varied images, as one device gets them."""
    return varied(reader(train_batch_size=24, augment=AUGMENT).input_fn("train"), 15)


def test_images_are_varied_in_the_order_of_those_that_are_not(alone, order):
    assert [number for number, _ in alone] == order
    shifts = [np.frombuffer(image, np.float32) - number for number, image in alone]
    assert 0 < np.abs(shifts).max() < 1
    assert len(np.unique(shifts)) > 0.99 * np.size(shifts)


def test_an_example_is_varied_anew_in_each_epoch(alone):
    assert len(set(alone)) == len(alone) > 2 * TOTAL


@pytest.mark.parametrize(("pipelines", "batch", "step"), [(1, 40, 3), (2, 16, 0), (3, 24, 5)])
def test_images_are_varied_alike_in_any_batches_pipelines_and_resumed_runs(reader, alone, pipelines, batch, step):
    made = reader(train_batch_size=batch, augment=AUGMENT, start_step=lambda: step)
    steps = (len(alone) // batch) - step
    for index in range(pipelines):
        own = varied(made.input_fn("train", context(pipelines, index)), steps)
        assert own == alone[step * batch + index :: pipelines][: len(own)]
        assert len(own) == steps * batch // pipelines


def test_pipelines_with_files_of_their_own_vary_by_numbers_of_their_own(reader):
    made = {"sharding": "file", "augment": AUGMENT, "train_batch_size": 16}
    shares = [varied(reader(**made).input_fn("train", context(2, index)), 8) for index in range(2)]
    first, second = ([np.frombuffer(image, np.float32) - number for number, image in share] for share in shares)
    assert np.abs(np.array(first) - np.array(second)).min(axis=1).max() > 0.01
    resumed = reader(**made, start_step=lambda: 5).input_fn("train", context(2, 1))
    assert varied(resumed, 3) == shares[1][5 * 8 :]


def test_evaluation_varies_nothing(make_reader):
    one, other = make_reader(), make_reader(augment=AUGMENT)
    assert varied(one.input_fn("eval"), -1) == varied(other.input_fn("eval"), -1)


def test_a_preprocessing_fn_without_images_ends_with_its_own_error(make_reader):
    made = make_reader(augment=AUGMENT, transform=lambda raw: {"label": raw["label"]})
    with pytest.raises(UserCodeError, match="the preprocessing_fn returns nothing, and no `image`"):
        made.input_fn("train")
