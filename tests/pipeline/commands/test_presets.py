"""`tfx-estimator presets`."""

from __future__ import annotations

import pytest

from tfx_estimator.__main__ import main
from tfx_estimator.pipeline import presets

pytestmark = pytest.mark.unit


def test_lists_each_in_one_line_the_smallest_first(capsys):
    assert main(["presets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == presets.names()
    assert lines[0].split()[0] == "digits"
    for line in lines:
        assert len(line.split()) > 4
        assert len(line) < 120


def test_shows_one_presets_header(capsys):
    assert main(["presets", "mnist"]) == 0
    text = capsys.readouterr().out
    for part in ("Required overrides:", "data.data_dir=DIR", "Usual overrides:", "Expected result:"):
        assert part in text
    assert "#" not in text


def test_an_unknown_one_is_refused(capsys):
    assert main(["presets", "mnits"]) == 2
    assert "did you mean `mnist`?" in capsys.readouterr().err
