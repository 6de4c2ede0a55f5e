"""Decoding inside a graph gives the same pixels as ingestion, for each kind of PNG and JPEG."""

from __future__ import annotations

import collections
import io
from typing import Any, Optional

import numpy as np
import pytest
import tensorflow as tf
from etils import epath
from PIL import Image

from tfx_estimator.data.encoded_images import decode_encoded
from tfx_estimator.data.sources.image_decoding import read_image

SIZES: tuple[Optional[tuple[int, int]], ...] = (None, (6, 5), (20, 17))


def file(values: np.ndarray, form: str = "PNG", mode: Optional[str] = None, **options: Any) -> bytes:
    image, buffer = Image.fromarray(values), io.BytesIO()
    (image.convert(mode) if mode else image).save(buffer, form, **options)
    return buffer.getvalue()


def pixels(*shape: int, dtype: Any = np.uint8) -> np.ndarray:
    return np.random.default_rng(7).integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def lying(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x010E], exif[0x0112] = "a text before it", orientation
    return exif.tobytes()


GREY, COLOUR = pixels(9, 13), pixels(9, 13, 3)
KINDS = {
    "grey": (1, [file(GREY)]),
    "grey of 16 bits": (1, [file(pixels(9, 13, dtype=np.uint16))]),
    "black and white": (1, [file(GREY, mode="1")]),
    "grey with alpha": (1, [file(pixels(9, 13, 2))]),
    "grey, one of it transparent": (1, [file(GREY // 64, transparency=2)]),
    "grey JPEG": (1, [file(GREY, "JPEG")]),
    "colour": (3, [file(COLOUR)]),
    "colour with alpha": (3, [file(pixels(9, 13, 4))]),
    "palette": (3, [file(COLOUR, mode="P"), file(COLOUR, mode="P", bits=4), file(GREY // 64, mode="P", bits=2)]),
    "palette with alpha": (3, [file(GREY // 16, mode="P", bits=4, transparency=bytes(range(7, 247, 16)))]),
    "JPEG": (3, [file(COLOUR, "JPEG"), file(COLOUR, "JPEG", progressive=True, subsampling=0)]),
    "JPEG that lies otherwise": (3, [file(COLOUR, "JPEG", exif=lying(number)) for number in range(10)]),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("channels", [1, 3])
def test_files_of_each_kind_decode_to_the_pixels_of_ingestion(tmp_path, channels, size):
    by_shape = collections.defaultdict(list)
    for kind, (kinds_channels, files) in KINDS.items():
        for number, data in enumerate(files if kinds_channels in (1, channels) else ()):
            place = epath.Path(tmp_path / f"{kind} {number}")
            place.write_bytes(data)
            read = read_image(place, channels, size)
            by_shape[read.shape].append((place.name, data, read))
    assert len(by_shape) == (2 if channels == 3 and size is None else 1)
    for shape, read in by_shape.items():
        found = decode_encoded(tf.constant([data for _, data, _ in read]), shape, size is not None).numpy()
        assert [name for (name, _, expected), image in zip(read, found) if not np.array_equal(expected, image)] == []
        assert len(found) == len(read)


@pytest.fixture(scope="module")
def decode():
    spec = tf.TensorSpec([None], tf.string)
    return tf.function(lambda files: decode_encoded(files, (9, 13, 3), resized=False), input_signature=[spec])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"", "image 2 of the batch is not a complete PNG or JPEG file"),
        (b"text", "image 2 of the batch is not a complete PNG or JPEG file"),
        (file(COLOUR)[:-20], "image 2 of the batch is not a complete PNG or JPEG file"),
        (file(COLOUR, "JPEG")[:-30], "image 2 of the batch is not a complete PNG or JPEG file"),
        (file(COLOUR, "GIF"), "image 2 of the batch is not a complete PNG or JPEG file"),
        (file(pixels(9, 13, 4), "JPEG", mode="CMYK"), "image 2 of the batch is CMYK"),
        (file(pixels(9, 12, 3)), r"image 2 of the batch is of height, width, channels \[9 12 3\]"),
        (file(GREY[1:]), r"image 2 of the batch is of height, width, channels \[8 13 1\]"),
    ],
)
def test_the_first_image_that_cannot_be_read_is_named(decode, bad, message):
    good = file(COLOUR)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{message}, expected 9 x 13 pixels with 3 channels"):
        decode(tf.constant([good, good, bad, good, b""]))


def test_a_grey_model_refuses_colour():
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"channels \[9 13 3\], expected 9 x 13 pixels with 1 ch"):
        decode_encoded(tf.constant([file(GREY), file(COLOUR)]), (9, 13, 1), resized=False)


def test_a_batch_may_be_empty(decode):
    assert decode(tf.constant([], tf.string)).shape == (0, 9, 13, 3)
