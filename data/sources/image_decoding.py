"""Reads PNG and JPEG files, each by itself: a damaged one is named.

Pillow decodes, and sees what TensorFlow's decoder passes over: orientation, transparency, the checksums of a PNG.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any, Optional

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from tfx_estimator.data.resizing import resizer
from tfx_estimator.data.sources.files import damaged, reading
from tfx_estimator.pipeline.base.errors import TfxEstimatorError

_FORMATS = ("PNG", "JPEG")
# Of a PNG: where its header says what its samples are, and grey without and with alpha.
_COLOUR_TYPE, _GREY_TYPES = 25, (b"\0", b"\4")
_ORIENTATION, _TURNED = 0x0112, (5, 6, 7, 8)
_WHITE = (255, 255, 255, 255)


def read_shape(path: Any) -> tuple[int, int, int]:
    """Returns (height, width, channels) of an image (`epath.Path`), from its header alone."""
    with reading(path), path.open("rb") as file, _naming(path), Image.open(file, formats=_FORMATS) as image:
        width, height = image.size
        # Pillow calls a JPEG of several pictures, as phones write it, MPO. A PNG may say it after its pixels, so that
        # asking would decode them all: there it does not count.
        if image.format != "PNG" and image.getexif().get(_ORIENTATION) in _TURNED:
            width, height = height, width
        grey = image.mode == "L"
        if image.format == "PNG":
            # Pillow opens grey of 16 bits with alpha as colour.
            file.seek(_COLOUR_TYPE)
            grey = file.read(1) in _GREY_TYPES
        return height, width, 1 if grey else 3


def read_image(path: Any, channels: int, size: Optional[tuple[int, int]]) -> np.ndarray:
    """Returns the pixels of an image, uint8 (height, width, channels), resized to `size`, antialiased and bilinear.

    A JPEG is turned as its EXIF orientation says, and CMYK becomes RGB; of 16 bits the upper eight are kept;
    transparency is laid over white.
    """
    with reading(path):
        data = path.read_bytes()
    with _naming(path):
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            if image.format == "PNG":
                # Decoding leaves the checksums of the pixels alone. It cannot be used afterwards.
                image.verify()
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            image.load()
            flat = _flatten(image, "L" if channels == 1 else "RGB")
        pixels = np.asarray(flat).reshape(flat.height, flat.width, channels)
    return pixels if size in (None, pixels.shape[:2]) else resizer(size, channels)(pixels).numpy()


def _flatten(image: Image.Image, mode: str) -> Image.Image:
    if image.format != "PNG":
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        # Pillow's own conversion cuts at 255, and knows no transparent grey of 16 bits.
        values = np.asarray(image)
        upper = np.where(values == image.info.get("transparency", -1), 255, values >> 8)
        image = Image.fromarray(upper.astype(np.uint8))
    elif image.has_transparency_data:
        seen = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", seen.size, _WHITE), seen)
    return image.convert(mode)


@contextlib.contextmanager
def _naming(path: Any) -> Iterator[None]:
    try:
        yield
    except TfxEstimatorError:
        raise
    except UnidentifiedImageError:
        # Of which Pillow tells what object holds its bytes.
        raise damaged(path, "it is neither a PNG nor a JPEG file", "a whole PNG or JPEG file") from None
    except Exception as error:
        # zlib's, struct's, Pillow's own: damages have many names.
        raise damaged(path, f"it cannot be decoded: {error}", "a whole PNG or JPEG file") from None
