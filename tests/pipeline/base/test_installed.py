"""Installed packages, and their imports."""

from __future__ import annotations

import gc
from importlib import metadata

import pytest

from tfx_estimator.pipeline.base.installed import uncollected, version_of

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


def fail(kept: list) -> None:
    with uncollected():
        assert not gc.isenabled()
        kept.append([object()])
        raise ImportError


@pytest.mark.parametrize("on", [True, False])
def test_garbage_collection_is_paused_and_restored_afterwards(on):
    was_on = gc.isenabled()
    (gc.enable if on else gc.disable)()
    try:
        with pytest.raises(ImportError):
            fail(kept := [])
        assert gc.isenabled() == on
        # It is not examined again.
        assert not any(each is kept[0] for each in gc.get_objects())
    finally:
        (gc.enable if was_on else gc.disable)()
