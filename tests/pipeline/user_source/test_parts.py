"""Which functions of which modules have changed."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.user_source import parts

BEFORE = {
    "networks": b"import os\n\nRATE = 1\n\n\ndef small():\n    return 1\n\n\nclass Own:\n    pass\n",
    "tfx_estimator.data.order": b"ours",
    "own": b"",
    "own.layers": b"WIDTH: int = 1\n",
}


@pytest.mark.parametrize(
    ("module", "old", "new", "changes"),
    [
        ("networks", b"return 1", b"return 2", ["networks.py changed: small()"]),
        ("networks", b"pass", b"x = 1", ["networks.py changed: Own"]),
        ("networks", b"RATE = 1", b"RATE = 2", ["networks.py changed: RATE"]),
        ("networks", b"RATE = 1", b"SPEED = 1", ["networks.py changed: RATE, SPEED"]),
        ("networks", b"import os", b"import sys", ["networks.py changed: imports"]),
        ("networks", b"RATE = 1", b"RATE = 1  # slow", ["networks.py changed: comments or order"]),
        ("networks", b"RATE = 1", b"RATE = = 1", ["networks.py changed: imports, RATE, small(), 1 more"]),
        ("own", b"", b"X = 1\n", ["own/__init__.py changed: X"]),
        ("own.layers", b"1", b"2", ["own/layers.py changed: WIDTH"]),
        ("tfx_estimator.data.order", b"ours", b"newer", ["another version of tfx-estimator"]),
    ],
)
def test_changes_are_named(module: str, old: bytes, new: bytes, changes: list[str]) -> None:
    after = {**BEFORE, module: BEFORE[module].replace(old, new, 1) if old else new}
    assert list(parts.changes(parts.parts_of(BEFORE), parts.parts_of(after))) == changes


def test_modules_come_and_go_and_deep_code_is_no_error() -> None:
    deep = b"x = " + b" + ".join([b"1"] * 5000) + b"\n"
    more = parts.parts_of({**BEFORE, "deep": deep})
    assert list(parts.changes(parts.parts_of(BEFORE), more)) == ["deep.py is new"]
    assert list(parts.changes(more, parts.parts_of(BEFORE))) == ["deep.py is no longer imported"]
