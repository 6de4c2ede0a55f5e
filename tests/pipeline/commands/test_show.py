"""`tfx-estimator show`."""

from __future__ import annotations

import json

import pytest
import yaml

from tfx_estimator.__main__ import main
from tfx_estimator.pipeline.config import load

pytestmark = pytest.mark.unit


def test_shows_every_value_with_its_origin_aligned(capsys):
    assert main(["show", "mnist", "--set", "trainer.seed=7"]) == 0
    text = capsys.readouterr().out
    assert yaml.safe_load(text) == json.loads(load("mnist", ["trainer.seed=7"]).declaration.to_json())
    rows = [line for line in text.splitlines() if "  # " in line]
    assert len({row.index("  # ") for row in rows}) == 1
    assert any(row.split("  # ") == [row.split("  # ")[0], "--set"] and "seed: 7" in row for row in rows)
    assert any("dataset: mnist" in row and "# preset mnist:" in row for row in rows)


def test_a_long_value_does_not_push_all_comments_away(capsys):
    assert main(["show", "mnist", "--set", "trainer.params={note: " + "x" * 200 + "}"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if "  # " in line and "note" not in line]
    assert max(row.index("  # ") for row in rows) < 70


def test_json(capsys):
    assert main(["show", "digits", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["declaration"]["data"]["shards"] == 2
    assert shown["origins"]["data.shards"].startswith("preset digits:")
    assert shown["source"] == "digits"
    assert shown["file"].endswith("digits.yaml")


def test_a_bad_declaration_is_not_shown(capsys):
    assert main(["show", "mnist", "--set", "trainer.seed=x"]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert "trainer.seed" in found.err
