"""The size of the schema: its leaves, the keys that hold no section; those of the items of a list count as well.

python tests/golden/test_leaves.py counts them, also of another file.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SCHEMA = Path(__file__).with_name("declaration.schema.json")


def leaves(schema: dict[str, Any], node: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yields the dotted path of each leaf."""
    if name := node.get("$ref", "").rpartition("/")[2]:
        node = schema["definitions"][name]
    inside = [each for each in (*node.get("anyOf", ()), node.get("items")) if isinstance(each, dict)]
    if "properties" not in node and not (found := [each for part in inside for each in leaves(schema, part, path)]):
        yield path
    elif "properties" not in node:
        yield from ([each for each in found if each != path] or [path])
    for key, value in node.get("properties", {}).items():
        yield from leaves(schema, value, f"{path}.{key}".lstrip("."))


def count(file: Path) -> Counter[str]:
    """Returns the number of leaves of each section of a schema's file."""
    schema = json.loads(file.read_text())
    return Counter(path.partition(".")[0] for path in leaves(schema, schema))


@pytest.mark.golden
def test_deployment_declares_what_it_must_and_kubernetes_says_the_rest():
    assert count(SCHEMA)["deploy"] <= 130


if __name__ == "__main__":
    found = count(Path(sys.argv[1]) if sys.argv[1:] else SCHEMA)
    for section, number in [*found.most_common(), ("in all", sum(found.values()))]:
        print(f"{number:>5} {section}")
