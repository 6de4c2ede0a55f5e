"""Installed packages, and their imports."""

from __future__ import annotations

import gc
import json
from importlib import metadata

import pytest

from tests.root import ROOT
from tfx_estimator.pipeline.base.installed import install_command, uncollected, version_of


def test_an_installed_package():
    assert version_of("tensorflow") == metadata.version("tensorflow")
    assert version_of("no-such-package") is None


def test_tensorflow_for_cpus_alone(tmp_path, monkeypatch):
    folder = tmp_path / "tensorflow_cpu-2.15.9.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: tensorflow-cpu\nVersion: 2.15.9\n")
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert version_of("tensorflow") == "2.15.9"


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ({"url": "file:///my%20wheels/a.whl", "archive_info": {}}, 'pip install "/my wheels/a.whl[x]"'),
        ({"url": "file:///clone", "dir_info": {}}, 'pip install "/clone[x]"'),
        ({"url": "file:///clone", "dir_info": {"editable": True}}, 'pip install -e "/clone[x]"'),
        ({"url": "https://a/b.whl", "archive_info": {}}, 'pip install "tfx-estimator[x] @ https://a/b.whl"'),
        ({"url": "https://a/b", "vcs_info": {"vcs": "git"}}, 'pip install "tfx-estimator[x] @ git+https://a/b"'),
        (None, 'pip install "tfx-estimator[x]"'),
    ],
)
def test_an_extra_is_installed_from_where_the_package_came(tmp_path, monkeypatch, origin, command):
    (folder := tmp_path / "tfx_estimator-9.dist-info").mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: tfx-estimator\nVersion: 9\n")
    if origin:
        (folder / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert install_command("x") == command


def test_an_extra_of_a_folder_on_the_path_is_installed_from_it(monkeypatch):
    monkeypatch.setattr("sys.path", [])
    assert install_command("mlflow") == f'pip install -e "{ROOT}[mlflow]"'


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
