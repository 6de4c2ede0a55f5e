"""Each operation of `trainer.augment`, against NumPy and SciPy with the same random numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf
from scipy import ndimage, stats

from tfx_estimator.data.augmentation.augmenter import Augmenter
from tfx_estimator.data.augmentation.draws import Draws
from tfx_estimator.pipeline.base.errors import DeclarationError, UserCodeError
from tfx_estimator.pipeline.config.trainer import TrainerSection

SEED, BATCH = 11, 64
SHAPE = (13, 9, 3)
POSITIONS = np.arange(BATCH) * 7 + 2**40


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(BATCH, *SHAPE)).astype(np.float32)


def augment(images: np.ndarray, *operations, positions=POSITIONS, seed: int = SEED, stream: int = 0) -> np.ndarray:
    declared = TrainerSection.parse_obj({"augment": operations}).augment
    features = {"image": tf.constant(images), "other": tf.constant(1)}
    varied = Augmenter(declared, seed, stream)(features, tf.constant(positions, tf.int64))
    assert varied["other"] is features["other"]
    assert (varied["image"].shape, varied["image"].dtype) == (features["image"].shape, features["image"].dtype)
    return varied["image"].numpy()


def draws(positions=POSITIONS, seed: int = SEED):
    """Returns the random numbers of the operations, in the same order."""
    return Draws(tf.constant(positions, tf.int64), seed)


def split_mix(state: int) -> int:
    """SplitMix64, as in its authors' C code."""
    bits = 2**64 - 1
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & bits
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB & bits
    return state ^ (state >> 31)


def test_the_random_numbers_equal_splitmix():
    golden, bits = 0x9E3779B97F4A7C15, 2**64 - 1
    # The first three numbers of the seed 1234567, published with the generator.
    assert [split_mix(1234567 + n * golden & bits) for n in (1, 2, 3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]
    start = split_mix(SEED + golden & bits)
    start = split_mix(start + golden & bits)
    keys = [split_mix(int(position) * golden + start & bits) for position in POSITIONS]
    expected = [[split_mix(key + drawn * golden & bits) for key in keys] for drawn in (1, 2, 3)]
    random = draws()
    np.testing.assert_array_equal(random.integers(9), [(value >> 32) * 9 >> 32 for value in expected[0]])
    np.testing.assert_array_equal(random.uniform(0, 1), [(value >> 40) * 2.0**-24 for value in expected[1]])
    np.testing.assert_array_equal(random.flags(), [value >> 63 == 1 for value in expected[2]])


@pytest.mark.parametrize(("fill", "mode"), [("zero", "constant"), ("reflect", "reflect")])
@pytest.mark.parametrize("factor", [0, 0.2, 1])
def test_translations_are_by_whole_pixels_up_to_a_share_of_the_image(images, fill, mode, factor):
    height, width, _ = SHAPE
    options = {"height_factor": 0.4, "width_factor": factor, "fill": fill}
    down, right = 5, min(round(factor * width), width - 1 if fill == "reflect" else width)
    random = draws()
    tops, lefts = random.integers(2 * down + 1).numpy(), random.integers(2 * right + 1).numpy()
    padded = np.pad(images, [(0, 0), (down, down), (right, right), (0, 0)], mode=mode)
    expected = [
        image[top : top + height, left : left + width] for image, top, left in zip(padded, tops, lefts, strict=True)
    ]
    np.testing.assert_array_equal(augment(images, {"random_translation": options}), expected)


def test_moves_in_a_row_are_applied_one_after_another(images):
    operations = [
        {"random_crop": {"padding": 3}},
        "random_flip",
        {"random_translation": {"height_factor": 0.3, "width_factor": 0.3, "fill": "reflect"}},
        {"random_flip": {"mode": "vertical"}},
        {"random_crop": {"padding": 2, "fill": "reflect"}},
    ]
    height, width, _ = SHAPE
    random, expected = draws(), images
    for kind, down, right in [("constant", 3, 3), ("flip", 0, 2), ("reflect", 4, 3), ("flip", 0, 1), ("reflect", 2, 2)]:
        if kind == "flip":
            expected = np.where(random.flags().numpy()[:, None, None, None], np.flip(expected, right), expected)
            continue
        tops, lefts = random.integers(2 * down + 1).numpy(), random.integers(2 * right + 1).numpy()
        padded = np.pad(expected, [(0, 0), (down, down), (right, right), (0, 0)], mode=kind)
        expected = np.stack([p[t : t + height, x : x + width] for p, t, x in zip(padded, tops, lefts, strict=True)])
    np.testing.assert_array_equal(augment(images, *operations), expected)


def warped(image: np.ndarray, matrix: np.ndarray, mode: str) -> np.ndarray:
    """Samples the image at `matrix` times the position, relative to the centre."""
    height, width, channels = image.shape
    centre = np.array([(height - 1) / 2, (width - 1) / 2])
    grid = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), -1) - centre
    places = np.moveaxis(grid @ matrix.T + centre, -1, 0)
    return np.stack([ndimage.map_coordinates(image[..., c], places, order=1, mode=mode) for c in range(channels)], -1)


@pytest.mark.parametrize(("fill", "mode"), [("zero", "grid-constant"), ("reflect", "reflect")])
def test_rotations_are_about_the_centre_and_bilinear(images, fill, mode):
    limit = math.radians(40)
    angles = draws().uniform(-limit, limit).numpy().astype(np.float64)
    assert angles.min() < -0.8 * limit
    assert angles.max() > 0.8 * limit
    matrices = [np.array([[np.cos(a), np.sin(a)], [-np.sin(a), np.cos(a)]]) for a in angles]
    expected = [warped(image, matrix, mode) for image, matrix in zip(images, matrices)]
    turned = augment(images, {"random_rotation": {"degrees": 40, "fill": fill}})
    np.testing.assert_allclose(turned, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("fill", "mode"), [("zero", "grid-constant"), ("reflect", "reflect")])
def test_zooms_are_about_the_centre_and_bilinear(images, fill, mode):
    factors = draws().uniform(0.7, 1.3).numpy().astype(np.float64)
    expected = [warped(image, np.eye(2) / factor, mode) for image, factor in zip(images, factors)]
    zoomed = augment(images, {"random_zoom": {"factor": 0.3, "fill": fill}})
    np.testing.assert_allclose(zoomed, expected, rtol=0, atol=1e-4)


def test_brightness_is_one_number_added_to_an_image(images):
    added = draws().uniform(-0.5, 0.5).numpy()
    assert added.min() < -0.4
    assert added.max() > 0.4
    brighter = augment(images, {"random_brightness": {"factor": 0.5}})
    np.testing.assert_array_equal(brighter, images + added[:, None, None, None])


def test_contrast_keeps_each_channels_mean(images):
    factors = draws().uniform(0.4, 1.6).numpy()[:, None, None, None]
    mean = images.mean((1, 2), keepdims=True, dtype=np.float64)
    contrasted = augment(images, {"random_contrast": {"factor": 0.6}})
    np.testing.assert_allclose(contrasted, (images - mean) * factors + mean, rtol=0, atol=1e-5)


def test_saturation_keeps_grey_and_mixes_with_it(images):
    factors = draws().uniform(0.5, 1.5).numpy()[:, None, None, None]
    grey = tf.image.rgb_to_grayscale(images).numpy()
    saturated = augment(images, {"random_saturation": {"factor": 0.5}})
    np.testing.assert_allclose(saturated, grey + (images - grey) * factors, rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", [1, 4, 5, 13])
def test_cutout_hides_a_square_around_any_pixel(images, size):
    random = draws()
    expected = images.copy()
    for image, row, column in zip(expected, random.integers(SHAPE[0]).numpy(), random.integers(SHAPE[1]).numpy()):
        top, left = row - size // 2, column - size // 2
        image[max(top, 0) : top + size, max(left, 0) : left + size] = 0
    np.testing.assert_array_equal(augment(images, {"cutout": {"size": size}}), expected)


def test_noise_is_normal_and_independent_for_each_element(images):
    noise = (augment(images, {"gaussian_noise": {"stddev": 0.5}}) - images).astype(np.float64) / 0.5
    assert stats.kstest(noise.ravel(), stats.norm.cdf).pvalue > 1e-4
    assert len(np.unique(noise)) > 0.99 * noise.size


EVERY = [
    "random_contrast",
    "random_crop",
    "random_flip",
    "random_translation",
    "random_rotation",
    "random_zoom",
    "random_saturation",
    "gaussian_noise",
    "cutout",
    "random_brightness",
]


def test_an_image_is_varied_by_its_position_alone(images):
    whole = augment(images, *EVERY)
    for part in (slice(0, 1), slice(5, 42), slice(None, None, -1), slice(1, None, 3)):
        np.testing.assert_array_equal(augment(images[part], *EVERY, positions=POSITIONS[part]), whole[part])
    for other in (
        augment(images, *EVERY, positions=POSITIONS + 1),
        augment(images, *EVERY, seed=SEED + 1),
        augment(images, *EVERY, stream=1),
    ):
        # One or two numbers of each image may be equal.
        assert all((one != another).any() for one, another in zip(whole, other))


@pytest.mark.parametrize("operation", EVERY)
def test_other_types_and_a_single_channel(images, operation):
    double = images.astype(np.float64)
    np.testing.assert_allclose(augment(double, operation), augment(images, operation), rtol=0, atol=1e-5)
    if operation == "random_saturation":
        with pytest.raises(DeclarationError, match="the images have 1 channel\n"):
            augment(images[..., :1], operation)
    else:
        assert (augment(images[..., :1], operation) != images[..., :1]).any()


@pytest.mark.parametrize(
    ("features", "what"),
    [
        ({"pixels": np.zeros([2, 4, 4, 1], np.float32)}, "returns pixels, and no `image`"),
        ({"image": np.zeros([2, 4, 4, 1], np.uint8)}, "returns an `image` that is not a dense float tensor"),
        ({"image": np.zeros([2, 16], np.float32)}, "returns an `image` of shape"),
    ],
)
def test_a_preprocessing_fn_without_images_is_refused(features, what):
    augmenter = Augmenter(TrainerSection.parse_obj({"augment": ["random_flip"]}).augment, SEED)
    with pytest.raises(UserCodeError, match=what):
        augmenter({name: tf.constant(value) for name, value in features.items()}, tf.range(2, dtype=tf.int64))
