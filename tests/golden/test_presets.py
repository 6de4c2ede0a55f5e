"""The resolved declaration of every preset, and the schema."""

from __future__ import annotations

import pytest

from tfx_estimator.__main__ import main
from tfx_estimator.pipeline import presets

pytestmark = pytest.mark.golden


WORDS = {"declaration.schema.json": ["schema"]} | {f"presets/{each}.yaml": ["show", each] for each in presets.names()}


@pytest.mark.parametrize("file", WORDS)
def test_a_resolved_preset_and_the_schema(golden, capsys, file):
    assert main(WORDS[file]) == 0
    golden(file, capsys.readouterr().out)
