"""Small data sets for the tests of sources."""

from __future__ import annotations

import functools
import gzip
import importlib
import io
import itertools
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.data.sizes import opened, read_all
from tests.folders import write_files

SHADES = {"cat": 60, "dog": 180}
_NUMBERS = itertools.count()

_BUILDER = """
import numpy as np
import tensorflow_datasets as tfds

class {name}(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("{version}")
    {extra}

    def _info(self):
        return tfds.core.DatasetInfo(builder=self, supervised_keys={keys}, license="CC0", citation="@misc{{tiny}}",
            features=tfds.features.FeaturesDict({features}))

    def _split_generators(self, dl_manager):
        {before}
        return {{"train": self._generate_examples(0, 12), "test": self._generate_examples(12, 17)}}

    def _generate_examples(self, start, stop):
        for i in range(start, stop):
            yield i, {example}
"""


def save(path: Path, values: np.ndarray, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path, **options)
    return path


def fill(folder: Path, count: int = 10) -> Path:
    """Writes flat colour images by class, each with its own shade."""
    for name, shade in SHADES.items():
        for number in range(count):
            save(folder / name / f"{number}.png", np.full((4, 6, 3), shade + number, np.uint8))
    return folder


def bytes_of(form: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (6, 4)).save(buffer, form)
    return buffer.getvalue()


def read_one(folder: Path, values: np.ndarray, name: str = "1.png", **options: Any) -> np.ndarray:
    """Writes an image, and reads it."""
    save(folder / "b" / "1.png", np.zeros((*values.shape[:2], 3) if values.ndim == 3 else values.shape, values.dtype))
    save(folder / "a" / name, values, **options)
    (image,) = (image for image, label in read_all(opened(folder)) if label == 0)
    return image


def write_builder(place: Path, monkeypatch: pytest.MonkeyPatch, **changes: str) -> str:
    """Writes a module with a user's TFDS builder of 12 + 5 images; returns its `package.module:Class`."""
    number = next(_NUMBERS)  # TFDS registers class names until the process ends
    parts = {
        "name": f"Tiny{number}",
        "version": "1.0.0",
        "extra": "",
        "keys": '("image", "label")',
        "features": '{"image": tfds.features.Image(shape=(4, 6, 3)), '
        '"label": tfds.features.ClassLabel(names=["a", "b", "c"])}',
        "before": "pass",
        "example": '{"image": np.full((4, 6, 3), i, np.uint8), "label": i % 3}',
        **changes,
    }
    files = {"__init__.py": "", "tiny.py": _BUILDER.format(**parts)}
    files |= {"checksums.tsv": changes["checksums"]} if "checksums" in changes else {}
    folder = write_files(place / "modules" / f"tiny_package_{number}", files)
    monkeypatch.syspath_prepend(str(folder.parent))
    importlib.invalidate_caches()
    return f"{folder.name}.tiny:{parts['name']}"


@pytest.fixture
def make_builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    return functools.partial(write_builder, tmp_path, monkeypatch)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "tensorflow_datasets"
    folder.mkdir()
    return folder


def write_idx(path: Path, values: np.ndarray, kind: int = 0x08) -> None:
    """Writes an IDX file, gzipped if its name ends so."""
    data = struct.pack(f">BBBB{values.ndim}I", 0, 0, kind, values.ndim, *values.shape) + values.tobytes()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


@pytest.fixture
def idx_images() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Random images (n, 5, 4) and labels (n,) of 10 classes, for each split."""
    random = np.random.default_rng(1)

    def split(size: int) -> tuple[np.ndarray, np.ndarray]:
        return random.integers(0, 256, (size, 5, 4), np.uint8), (np.arange(size) % 10).astype(np.uint8)

    return {"train": split(700), "test": split(20)}


@pytest.fixture(params=["", ".gz"])
def idx_folder(request: pytest.FixtureRequest, tmp_path: Path, idx_images: dict) -> Path:
    """A folder of IDX files with MNIST's names, plain and gzipped."""
    folder = tmp_path / "idx"
    folder.mkdir()
    for split, prefix in (("train", "train"), ("test", "t10k")):
        images, labels = idx_images[split]
        write_idx(folder / f"{prefix}-images-idx3-ubyte{request.param}", images)
        write_idx(folder / f"{prefix}-labels-idx1-ubyte{request.param}", labels)
    return folder
