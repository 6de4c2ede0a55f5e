"""Mutations of valid declarations, reproducible by number."""

from __future__ import annotations

import dataclasses
import functools
import random
from typing import Any

import yaml

from tests.docs.pages import PAGES
from tfx_estimator.pipeline import presets

_NASTY = ("\x1b[31mred", "\x9b2J", "\u202egpj.exe", "\x85", "\u2028", "a\nb", "\0", "\ud800", "%s{0}", "'", "日本", "")
_NUMBERS = (0, -1, 1, 2**31, 2**63, 10**40, -(10**400), 1e308, float("inf"), float("nan"), 0.5)
_NESTED = ([], {}, [[]], [None], {"": None}, {"a": {"b": {"c": 1}}}, [1, "a", None])
_WORDS = ("mirrored:2", "mirrored:999999", "1e3", "0x10", "012", "yes", "~root", "!!python/object:os.system")
_VALUES: tuple[Any, ...] = (None, True, False, *_NUMBERS, *_NESTED, *_WORDS, *_NASTY)
_SIGNS = ("- ", ": ", "#", *"{}[]|>@`'\"=", "? ", "&a ", "*a ", "!!str ", "!x ", "---\n", "...\n", "<<: *a\n", "\\x1b")
_TEXTS = (*_SIGNS, "\t", "\x1b[2J", "\x00", "\x85", "9" * 500, "[" * 300, "{a: " * 300)
_FILES = ("my.yaml", "my.yaml", "my.yaml", "re\x1b[31md.yaml", "two\nlines.yaml", "\u202elmay.yaml", "[bold].yaml")
_KEYS = ("x", "name", "data", "train", "strategy", "devices", "optimizer", "keras", "null", "1", "a.b", *_NASTY)


@dataclasses.dataclass(frozen=True)
class Mutation:
    """A declaration, its file's name, and the overrides for `--set`."""

    file: str
    content: bytes
    overrides: tuple[str, ...]


@functools.cache
def originals() -> tuple[str, ...]:
    """Returns the presets and the docs' declarations; a partial one is merged over a valid one."""
    texts = [presets.path(name).read_text(encoding="utf-8") for name in presets.names()]
    for block in (block for page in PAGES for block in page.of("yaml")):
        part = yaml.safe_load(block.text)
        if isinstance(part, dict):
            base = {"name": "page", "data": {"dataset": "mnist"}, "trainer": {"model": "mnist_cnn", "train_steps": 9}}
            base.update({key: {**base.get(key, {}), **value} for key, value in part.items() if isinstance(value, dict)})
            texts.append(block.text if "name" in part else yaml.safe_dump(base))
    return tuple(texts)


def mutate(number: int) -> Mutation:
    """Returns the mutation that a seed determines."""
    chance = random.Random(number)
    text = chance.choice(originals())
    overrides: tuple[str, ...] = ()
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        how = chance.choice((_bytes, _structure, _structure, _structure, _lines, _aliases, None))
        if how is None:
            overrides += (_override(chance),)
        else:
            text = how(text, chance)
    content = text.encode("utf-8", "surrogatepass")
    if chance.random() < 0.05:
        place = chance.randrange(len(content) + 1)
        content = content[:place] + bytes(chance.randrange(256) for _ in range(4)) + content[place:]
    return Mutation(chance.choice(_FILES), content, overrides)


def _bytes(text: str, chance: random.Random) -> str:
    place = chance.randrange(len(text) + 1)
    return text[:place] + chance.choice(_TEXTS) + text[place + chance.choice((0, 0, 1, 5)) :]


def _lines(text: str, chance: random.Random) -> str:
    lines = text.splitlines(keepends=True) or [""]
    place = chance.randrange(len(lines))
    what = chance.choice(("drop", "double", "indent", "swap", "cut"))
    if what == "drop":
        del lines[place]
    elif what == "double":
        lines.insert(place, lines[place])
    elif what == "indent":
        lines[place] = " " * chance.randrange(1, 9) + lines[place].lstrip()
    elif what == "swap":
        lines.insert(chance.randrange(len(lines)), lines.pop(place))
    else:
        lines = lines[:place]
    return "".join(lines)


def _structure(text: str, chance: random.Random) -> str:
    """Changes a value or a key at a random place."""
    try:
        values = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        return _bytes(text, chance)
    target = values
    while isinstance(target, dict) and target:
        key = chance.choice(list(target))
        if isinstance(target[key], dict) and target[key] and chance.random() < 0.8:
            target = target[key]
            continue
        what = chance.choice(("value", "value", "value", "key", "rename", "drop", "deep"))
        if what == "value":
            target[key] = chance.choice(_VALUES)
        elif what == "key":
            target[chance.choice(_KEYS)] = chance.choice(_VALUES)
        elif what == "rename":
            target[chance.choice(_KEYS)] = target.pop(key)
        elif what == "drop":
            del target[key]
        else:
            for _ in range(chance.choice((3, 60))):
                target[key] = {chance.choice("abc"): target[key]} if chance.random() < 0.5 else [target[key]]
        break
    try:
        return yaml.safe_dump(values, allow_unicode=True, sort_keys=False)
    except (yaml.YAMLError, RecursionError, TypeError):
        return _bytes(text, chance)


def _aliases(text: str, chance: random.Random) -> str:
    return text + chance.choice(
        (
            "\na: &a {b: 1}\ntrainer2: {<<: *a}\n",
            "\nbeam: &a {options: *a}\n",
            "\nevaluator: &e\n  <<: [*e]\n",
            "\n<<: {pusher: {destination: /tmp}}\n",
            "\nbeam: *nowhere\n",
        )
    )


def _override(chance: random.Random) -> str:
    sections = ("data.", "trainer.", "trainer.optimizer.", "trainer.distribution.", "trainer.distribution.train.", "")
    keys = (*_KEYS, "train_steps", "splits", "shards", "model", "params", "train", "eval", "name", "dataset", "workers")
    value = chance.choice(_VALUES)
    written = value if isinstance(value, str) else yaml.safe_dump(value, default_flow_style=True).split("\n")[0]
    return chance.choice(sections) + chance.choice(keys) + chance.choice(("=", "=", "=", "")) + written
