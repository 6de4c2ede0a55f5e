"""A folder of the user's, in which a page's files lie and its commands are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import PAGES, Page

MODULE_FILE = "def trainer_fn(fn_args, schema):\n    raise NotImplementedError\n"


@pytest.fixture(params=PAGES, ids=lambda page: page.name)
def page(request: pytest.FixtureRequest) -> Page:
    """Each page."""
    return request.param


@pytest.fixture
def folder(page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the page's files in it."""
    page.write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path
