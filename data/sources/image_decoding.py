"""Reads PNG and JPEG files one by one, with errors that name a damaged file.

Pillow decodes them, as it handles what TensorFlow's decoder ignores: orientation, transparency, a PNG's checksums.
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
# Offset of a PNG's colour type, and the types of grey without and with alpha.
_COLOUR_TYPE, _GREY_TYPES = 25, (b"\0", b"\4")
_ORIENTATION, _TURNED = 0x0112, (5, 6, 7, 8)
_WHITE = (255, 255, 255, 255)


def read_shape(path: Any) -> tuple[int, int, int]:
    """Returns (height, width, channels) of an image (`epath.Path`), from its header only."""
    with reading(path), path.open("rb") as file, _naming(path), Image.open(file, formats=_FORMATS) as image:
        width, height = image.size
        # Not `format == "JPEG"`: Pillow names a JPEG of several pictures, as phones write them, MPO. A PNG's EXIF may
        # follow its pixels, which would have to be decoded: it is ignored.
        if image.format != "PNG" and image.getexif().get(_ORIENTATION) in _TURNED:
            width, height = height, width
        grey = image.mode == "L"
        if image.format == "PNG":
            # Pillow opens 16-bit grey with alpha as colour.
            file.seek(_COLOUR_TYPE)
            grey = file.read(1) in _GREY_TYPES
        return height, width, 1 if grey else 3


def read_image(path: Any, channels: int, size: Optional[tuple[int, int]]) -> np.ndarray:
    """Returns the pixels of an image, uint8 (height, width, channels), resized to `size`, antialiased and bilinear.

    A JPEG's EXIF orientation is applied, and CMYK becomes RGB; 16-bit samples are cut to the upper eight bits;
    transparency is blended over white.
    """
    with reading(path):
        data = path.read_bytes()
    with _naming(path):
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            if image.format == "PNG":
                # Decoding ignores the pixels' checksums; after `verify` an image cannot be decoded.
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
        # Pillow's own conversion clips at 255, and ignores transparency of 16-bit grey.
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
        # Pillow's message only names a Python object.
        raise damaged(path, "it is neither a PNG nor a JPEG file", "a complete PNG or JPEG file") from None
    except Exception as error:
        # Errors of zlib, struct and Pillow.
        raise damaged(path, f"it cannot be decoded: {error}", "a complete PNG or JPEG file") from None
