"""Formats of image files: what the reading of data, ingestion and `predict` recognise, and what they decode."""

from __future__ import annotations

import re

# Enough of a file to recognise its format.
HEAD_BYTES = 32
# Pillow's names; the others are named in errors only.
READ = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
EXPECTED = "a PNG, JPEG, WebP or BMP file, or a GIF of one picture"
_BEGINNINGS = {
    "PNG": rb"\x89PNG\r\n\x1a\n",
    "JPEG": rb"\xff\xd8\xff",
    "WEBP": rb"RIFF....WEBP",
    "BMP": rb"BM.{4}\0{4}",
    "GIF": rb"GIF8[79]a",
    "TIFF": rb"II[*+]\0|MM\0[*+]",
    "HEIC": rb".{4}ftyp(?:he|mif1|msf1)",
    "AVIF": rb".{4}ftypavi",
}
_NAMES = {"JPG": "JPEG", "TIF": "TIFF", "HEIF": "HEIC", "JP2": "JPEG 2000", "JXL": "JPEG XL", "DCM": "DICOM"}
_NAMES |= {name: name for name in (*_BEGINNINGS, "PBM", "PGM", "PPM", "SVG")}
SUFFIXES = tuple(f".{name.lower()}" for name in _NAMES)


def find_format(head: bytes, name: str = "") -> str:
    """Returns the format that a file's first bytes show, or else its name; empty if it is no image."""
    shown = (each for each, beginning in _BEGINNINGS.items() if re.match(beginning, head, re.DOTALL))
    return next(shown, _NAMES.get(name.rpartition(".")[2].upper(), ""))
