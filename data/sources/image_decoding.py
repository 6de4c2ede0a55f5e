"""Reads image files one by one, with errors that name a damaged one, or the format of another.

Pillow decodes them, as it handles what TensorFlow's decoder ignores: orientation, transparency, a PNG's checksums.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any, BinaryIO, Optional

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from tfx_estimator.data.resizing import resizer
from tfx_estimator.data.sources.files import IMAGE_BYTES, damaged, reading
from tfx_estimator.pipeline.base.errors import DataError, TfxEstimatorError
from tfx_estimator.pipeline.base.files import open_regular
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.user_data.names import EXPECTED, HEAD_BYTES, READ, find_format

# Offset of a PNG's colour type, and the types of grey without and with alpha.
_COLOUR_TYPE, _GREY_TYPES = 25, (b"\0", b"\4")
_ORIENTATION, _TURNED = 0x0112, (5, 6, 7, 8)
_OF_PICTURES = ("GIF", "WEBP")
_WHITE = (255, 255, 255, 255)


def read_header(path: Any) -> tuple[int, int, int, str]:
    """Returns (height, width, channels, format) of an image (`epath.Path`), from its header only."""
    with reading(path), open_regular(path, IMAGE_BYTES) as file, _opened(path, file) as image:
        width, height = image.size
        # Not `format == "JPEG"`: Pillow names a JPEG of several pictures, as phones write them, MPO. A PNG's EXIF may
        # follow its pixels, which would have to be decoded: it is ignored.
        if image.format != "PNG" and image.getexif().get(_ORIENTATION) in _TURNED:
            width, height = height, width
        grey = image.mode in ("1", "L")
        if image.format == "PNG":
            # Pillow opens 16-bit grey with alpha as colour.
            file.seek(_COLOUR_TYPE)
            grey = file.read(1) in _GREY_TYPES
        return height, width, 1 if grey else 3, "JPEG" if image.format == "MPO" else str(image.format)


def read_image(path: Any, channels: int, size: Optional[tuple[int, int]]) -> np.ndarray:
    """Returns the pixels of an image, uint8 (height, width, channels), resized to `size`, antialiased and bilinear.

    EXIF orientation is applied, except a PNG's, and CMYK becomes RGB; 16-bit samples are cut to the upper eight bits;
    transparency is blended over white.
    """
    with reading(path), open_regular(path, IMAGE_BYTES) as file:
        data = io.BytesIO(file.read())
    with _opened(path, data) as image:
        if image.format == "PNG":
            # Decoding ignores the pixels' checksums; after `verify` an image cannot be decoded.
            image.verify()
    with _opened(path, data) as image:
        image.load()
        flat = _flatten(image, "L" if channels == 1 else "RGB")
        pixels = np.asarray(flat).reshape(flat.height, flat.width, channels)
    return pixels if size in (None, pixels.shape[:2]) else resizer(size, channels)(pixels).numpy()


def to_channels(images: np.ndarray, channels: int) -> np.ndarray:
    """Returns uint8 images (..., 1 or more) with 1 or 3 channels, grey as Pillow computes it, without transparency."""
    stored = images.shape[-1]
    if stored == channels:
        return images
    if channels > 1:
        return images[..., :3] if stored > channels else np.repeat(images[..., :1], channels, axis=-1)
    grey = images[..., :3].astype(np.uint32) @ np.array([[19595], [38470], [7471]], np.uint32)
    return ((grey + 0x8000) >> 16).astype(np.uint8)


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
def _opened(path: Any, file: BinaryIO) -> Iterator[Image.Image]:
    """Opens an image by Pillow; raises errors that name its file."""
    try:
        file.seek(0)
        with Image.open(file, formats=READ) as image:
            if image.format in _OF_PICTURES and getattr(image, "is_animated", False):
                what = f"{path} is an animated {image.format}"
                raise DataError(one_line(what), expected=EXPECTED, todo="replace it by one of its pictures")
            yield image
    except TfxEstimatorError:
        raise
    except UnidentifiedImageError:
        # Pillow's message only names a Python object.
        file.seek(0)
        found = find_format(file.read(HEAD_BYTES), path.name)
        if found in ("", *READ):
            raise damaged(path, f"it is no complete {found or 'image'}", EXPECTED) from None
        todo = "make PNGs of all such files, as ImageMagick's `mogrify -format png` does, and remove these"
        raise DataError(one_line(f"{path} is an image in the format {found}"), expected=EXPECTED, todo=todo) from None
    except Exception as error:
        # Errors of zlib, struct and Pillow.
        raise damaged(path, f"it cannot be decoded: {error}", EXPECTED) from None
