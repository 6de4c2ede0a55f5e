"""Small data sets for the tests of sources."""

from __future__ import annotations

import gzip
import importlib
import itertools
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

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


@pytest.fixture
def make_builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Writes a module with a user's TFDS builder of 12 + 5 images; returns its `package.module:Class`."""

    def make(**changes: str) -> str:
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
        folder = tmp_path / "modules" / f"tiny_package_{number}"
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder / "tiny.py").write_text(_BUILDER.format(**parts))
        if "checksums" in changes:
            (folder / "checksums.tsv").write_text(changes["checksums"])
        monkeypatch.syspath_prepend(str(tmp_path / "modules"))
        importlib.invalidate_caches()
        return f"{folder.name}.tiny:{parts['name']}"

    return make


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
