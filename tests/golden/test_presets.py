"""The resolved declaration of every preset, and the schema."""

from __future__ import annotations

import pytest

from tfx_estimator.__main__ import main
from tfx_estimator.pipeline import presets

pytestmark = pytest.mark.golden


@pytest.mark.parametrize("name", presets.names())
def test_the_resolved_declaration_of_a_preset(golden, capsys, name):
    assert main(["show", name]) == 0
    golden(f"presets/{name}.yaml", capsys.readouterr().out)


def test_the_schema(golden, capsys):
    assert main(["schema"]) == 0
    golden("declaration.schema.json", capsys.readouterr().out)
