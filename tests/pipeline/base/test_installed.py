"""TensorFlow is found by whatever name its package has."""

from __future__ import annotations

from importlib import metadata

import pytest

from tfx_estimator.pipeline.base.installed import version_of

pytestmark = pytest.mark.unit


def test_an_installed_package():
    assert version_of("tensorflow") == metadata.version("tensorflow")
    assert version_of("no-such-package") is None


def test_tensorflow_for_cpus_alone(tmp_path, monkeypatch):
    folder = tmp_path / "tensorflow_cpu-2.15.9.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: tensorflow-cpu\nVersion: 2.15.9\n")
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert version_of("tensorflow") == "2.15.9"
