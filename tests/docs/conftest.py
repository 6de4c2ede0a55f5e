"""A folder of the user's, in which a page's files lie and its commands are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import PAGES, Page

_WEIGHTS = "runs/digits/serving/1/variables/variables"
_CONVERTED = "converted/checkpoints"
_DATA = ("pets/cat/1.png", "pets/dog/1.png", "labels.csv", f"{_WEIGHTS}.index", f"{_WEIGHTS}.data-00000-of-00001")
MODULE_FILE = "def trainer_fn(fn_args, schema):\n    raise NotImplementedError\n"


@pytest.fixture(params=PAGES, ids=lambda page: page.name)
def page(request: pytest.FixtureRequest) -> Page:
    return request.param


@pytest.fixture
def folder(page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the page's files in it, and the data that it speaks of."""
    page.write_files(tmp_path)
    for name in _DATA:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    # What `convert` leaves.
    (tmp_path / _CONVERTED).mkdir(parents=True)
    (tmp_path / _CONVERTED / "model.ckpt-600.index").touch()
    (tmp_path / _CONVERTED / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-600"\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path
