"""Formats of image files: what the reading of data, ingestion and `predict` recognise, and what they decode."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

# Enough of a file to recognise its format.
HEAD_BYTES = 32


class ImageFormat(NamedTuple):
    """A format; `beginning` matches a file's first bytes."""

    name: str
    suffixes: tuple[str, ...]
    beginning: Optional[bytes] = None
    is_read: bool = False


# Pillow has the same names for those that are read.
_FORMATS = (
    ImageFormat("PNG", (".png",), rb"\x89PNG\r\n\x1a\n", True),
    ImageFormat("JPEG", (".jpg", ".jpeg"), rb"\xff\xd8\xff", True),
    ImageFormat("WEBP", (".webp",), rb"RIFF....WEBP", True),
    ImageFormat("BMP", (".bmp",), rb"BM.{4}\0{4}", True),
    ImageFormat("GIF", (".gif",), rb"GIF8[79]a", True),
    ImageFormat("TIFF", (".tif", ".tiff"), rb"II[*+]\0|MM\0[*+]"),
    ImageFormat("HEIC", (".heic", ".heif"), rb".{4}ftyp(?:he|mif1|msf1)"),
    ImageFormat("AVIF", (".avif",), rb".{4}ftypavi"),
    ImageFormat("JPEG 2000", (".jp2",), rb"\0\0\0\x0cjP  "),
    ImageFormat("JPEG XL", (".jxl",), rb"\xff\x0a|\0\0\0\x0cJXL "),
    ImageFormat("DICOM", (".dcm",)),
    ImageFormat("PNM", (".pbm", ".pgm", ".ppm")),
    ImageFormat("SVG", (".svg",)),
)
READ = tuple(each.name for each in _FORMATS if each.is_read)
SUFFIXES = tuple(suffix for each in _FORMATS for suffix in each.suffixes)
EXPECTED = "a PNG, JPEG, WebP or BMP file, or a GIF of one picture"


def find_format(head: bytes, name: str = "") -> Optional[ImageFormat]:
    """Returns the format that a file's first bytes show, or else its name; None if it is no image."""
    for each in _FORMATS:
        if each.beginning and re.match(each.beginning, head, re.DOTALL):
            return each
    return next((each for each in _FORMATS if name.lower().endswith(each.suffixes)), None)
