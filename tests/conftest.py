"""Fixtures that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REAL_DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "tfds"


@pytest.fixture(scope="session")
def real_data_dir() -> str:
    """A TFDS data_dir with the whole MNIST and CIFAR-10, where this machine has one."""
    folder = Path(os.environ.get("TFX_ESTIMATOR_REAL_DATA", REAL_DATA))
    if not folder.is_dir():
        pytest.skip(f"no prepared MNIST / CIFAR-10 at {folder}; set TFX_ESTIMATOR_REAL_DATA to a TFDS data_dir")
    return str(folder)
