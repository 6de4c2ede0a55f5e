"""The pages are complete: every key of a declaration with its allowed words, every option of the command line."""

from __future__ import annotations

import argparse
import functools
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.docs.pages import PAGES
from tests.root import ROOT
from tfx_estimator.__main__ import make_parser
from tfx_estimator.pipeline.base.stack.stacks import STACKS

SCHEMA = json.loads((ROOT / "tests" / "golden" / "declaration.schema.json").read_text(encoding="utf-8"))
WORD = re.compile(r"[\w-]+")


class Key(NamedTuple):
    section: str
    name: str
    words: tuple[str, ...] = ()


def keys(node: dict[str, Any], section: str = "") -> Iterator[Key]:
    """Yields the keys below a node of the schema, once for each parent key."""
    if reference := node.get("$ref"):
        yield from keys(SCHEMA["definitions"][reference.rpartition("/")[2]], section)
    for group in ("allOf", "anyOf", "oneOf"):
        for each in node.get(group, ()):
            yield from keys(each, section)
    for group in ("items", "additionalProperties"):
        if isinstance(each := node.get(group), dict):
            yield from keys(each, section)
    for name, value in node.get("properties", {}).items():
        yield Key(section, name, tuple(words(value)))
        yield from keys(value, name)


def words(node: dict[str, Any]) -> Iterator[str]:
    yield from (each for each in node.get("enum", ()) if isinstance(each, str))
    for group in ("allOf", "anyOf", "oneOf"):
        for each in node.get(group, ()):
            yield from words(each)


@functools.cache
def words_of_pages() -> tuple[frozenset[str], ...]:
    texts = ([*page.spans, *(block.text for block in page.blocks)] for page in PAGES)
    return tuple(frozenset(word for text in each for word in WORD.findall(text)) for each in texts)


def is_documented(key: Key) -> bool:
    """True if one page has the key, its section's name and all its allowed words."""
    wanted = {key.name, *key.words, *filter(None, [key.section])}
    return any(wanted <= page for page in words_of_pages())


def test_every_key_is_on_a_page_of_its_section_with_its_allowed_words() -> None:
    assert [key for key in sorted(set(keys(SCHEMA))) if not is_documented(key)] == []


def test_every_option_of_the_command_line_is_on_a_page() -> None:
    # By one of its names; no page mentions `--help`.
    options = {tuple(each.option_strings) for parser in parsers(make_parser()) for each in parser._actions}
    text = "".join(page.text for page in PAGES)
    missing = [names for names in options if names and not any(re.search(rf"{name}(?![\w-])", text) for name in names)]
    assert missing == [("-h", "--help")]


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
