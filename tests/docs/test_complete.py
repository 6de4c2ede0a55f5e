"""The reference is complete: every key of a declaration has its meaning, every option of the command line its help."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.docs.pages import PAGES
from tests.root import ROOT
from tfx_estimator.__main__ import VERBS, make_parser
from tfx_estimator.pipeline.base.stack.stacks import STACKS

SCHEMA = json.loads((ROOT / "tests" / "golden" / "declaration.schema.json").read_text(encoding="utf-8"))


def definition(node: dict[str, Any]) -> dict[str, Any]:
    """Returns the section that a key holds, or an empty one."""
    references = [each["$ref"] for each in (node, *node.get("anyOf", ())) if "$ref" in each]
    return SCHEMA["definitions"][references[0].rpartition("/")[2]] if references else {}


def keys(section: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for each in (section, *section.get("anyOf", ())):
        yield from each.get("properties", {}).items()


def test_every_key_has_its_meaning_in_the_schema() -> None:
    # The reference of the keys is made from it; a section's own meaning is that of a key without one.
    sections = {"": SCHEMA, **SCHEMA["definitions"]}
    bare = [
        f"{name}.{key}"
        for name, section in sections.items()
        for key, node in keys(section)
        if not (node.get("description") or definition(node).get("description"))
    ]
    assert bare == []


def test_every_section_is_in_a_declaration_of_a_page() -> None:
    shown = {name for page in PAGES for block in page.of("yaml") for name in yaml.safe_load(block.text)}
    assert set(SCHEMA["properties"]) <= shown


def test_every_option_of_the_command_line_has_its_help() -> None:
    options = [each for parser in parsers(make_parser()) for each in parser._actions]
    assert len(options) > 100
    assert [each.dest for each in options if not each.help and each.dest not in ("verb", "what")] == []


def test_every_verb_is_on_a_page() -> None:
    text = "".join(page.text for page in PAGES)
    assert [verb for verb in VERBS if f"tfx-estimator {verb}" not in text] == []


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from parsers(each)


def test_beam_images_have_the_beam_version_of_a_stack() -> None:
    named = re.findall(r"apache/beam_[\w.]+:([\w.]+)", "".join(page.text for page in PAGES))
    locks = [(ROOT / "requirements" / stack.lock).read_text() for stack in STACKS]
    assert named
    assert set(named) <= {each for lock in locks for each in re.findall(r"^apache-beam==([\w.]+)", lock, re.MULTILINE)}
