"""The site: each way in is short, each page is in the navigation, each key has a valid example."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import yaml

import tfx_estimator
from tests.docs.pages import Page
from tests.root import ROOT
from tfx_estimator import testing
from tfx_estimator.pipeline.config import Declaration, load

WAYS = ("Estimator, no TFX", "TFX or a table", "Start anew")


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, whose tags name Python functions."""


for tag in ("tag:yaml.org,2002:python/", "!ENV"):
    _Loader.add_multi_constructor(tag, lambda *_: None)
NAV = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), _Loader)["nav"]


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "site" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def leaves(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        node = list(node.values())
    for each in [node] if isinstance(node, str) else node:
        yield from [each] if isinstance(each, str) else leaves(each)


def test_each_way_in_has_at_most_six_pages_which_the_first_page_lists_in_order() -> None:
    nav = {name: list(leaves(pages)) for entry in NAV for name, pages in entry.items()}
    assert all(1 <= len(nav[way]) <= 6 for way in WAYS)
    assert [each for way in WAYS for each in nav[way]] == Page(ROOT / "docs" / "index.md").links


def test_every_page_is_once_in_the_navigation() -> None:
    pages = [each for each in leaves(NAV) if not each.startswith(("project/", "keys/", "api/"))]
    assert sorted(pages) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


def test_every_key_of_the_schema_has_an_entry_whose_example_loads(reference: ModuleType) -> None:
    schema = json.loads((ROOT / "tests" / "golden" / "declaration.schema.json").read_text(encoding="utf-8"))
    sections = [*schema["definitions"].values(), schema]
    wanted = {(each["title"], name) for each in map(mapping, sections) for name in each["properties"]}
    with reference.folder_of_examples():
        pages = dict(reference.key_pages(examples := reference.Examples()))
        places = [place for name in Declaration.__fields__ for place in reference.places(name)]
        found = {(place.section.__name__, name) for place in places for name in place.section.__fields__}
        assert found | {("Declaration", name) for name in Declaration.__fields__} == wanted
        assert set(pages) == {each for each in leaves(NAV) if each.startswith("keys/")}
        entries = re.findall(r"^#+ (\S+) \{ #\1 data-.*?^``` .*?\n(.*?)```$", "".join(pages.values()), re.M | re.S)
        assert {path for path, _ in entries} == {
            "name",
            *(
                f"{each.paths[0]}.{name}"
                for each in places
                for name, key in each.section.__fields__.items()
                if not reference._inside(key.kind)
            ),
        }
        for number, (path, text) in enumerate(entries):
            reference.Path(f"{number}.yaml").write_text(text)
            assert load(f"{number}.yaml").warnings == (), path
            assert re.search(rf"\b{path.rpartition('.')[2]}:", text), path
    assert examples.places


def mapping(definition: dict[str, Any]) -> dict[str, Any]:
    """The keys of a section, which may have a short form as well."""
    forms = [each for each in definition.get("anyOf", ()) if "properties" in each]
    return {**definition, **forms[0]} if forms else definition


def test_every_public_name_is_in_the_reference_of_python(reference: ModuleType) -> None:
    pages = dict(reference.api_pages())
    assert set(pages) == {each for each in leaves(NAV) if each.startswith("api/")}
    for module in (tfx_estimator, testing):
        names = re.findall(r"^::: [\w.]+\.(\w+)$", pages[f"api/{module.__name__}.md"], re.M)
        assert sorted(names) == sorted({*module.__all__} - {"__version__", "Called", "Ran"}), module.__name__
