"""What declarations, data and source are read as, and the cache keys of these: one recorded file for both stacks.

Releases of PyYAML, Python and NumPy differ in what they make of a text; a key that follows would train again, or take
another declaration's model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.data.sources.conftest import write_idx
from tests.folders import write_files
from tfx_estimator.components.tfds_example_gen.properties import LOCATION_KEY, to_properties
from tfx_estimator.components.trainer.settings import SETTINGS_KEY, Settings
from tfx_estimator.data.sources import open_source
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.data import DataSection
from tfx_estimator.pipeline.config.load import Loaded
from tfx_estimator.pipeline.config.yaml_text import leaves
from tfx_estimator.pipeline.user_source.fingerprint import fingerprint_meaning
from tfx_estimator.pipeline.user_source.imports import parse

pytestmark = pytest.mark.golden

GOOD = """\
name: mine
data: {dataset: mnist, splits: {train: train, eval: test}}
trainer:
  model: nets:net
  train_steps: 500
"""
# Ends of a declaration, each after its name.
ENDS = """
merge
  params: {a: &a {n: 50, m: 1}, b: {<<: *a, m: 2}, c: *a}

merge_of_several
  params: {a: &a {n: 2_000}, b: &b {n: 50, m: 1}, ab: {<<: [*a, *b]}, ba: {<<: [*b, *a]}}

merge_of_several_lines
  params:
    a: &a {n: 2_000}
    b: &b
      n: 50
      m: 1
    c:
      m: 7
      <<: [*a, *b]

merge_of_merges
  params: {a: &a {n: 1}, b: &b {<<: *a, m: 3}, c: {<<: [{m: 2}, *b]}, d: *b, e: {<<: [*b, *a], k: 0}}

merge_of_nothing
  params: {a: {<<: [], n: 1}, b: {<<: {}}}

merge_of_an_option
  optimizer:
    <<: [{learning_rate: 1e-1}, {learning_rate: 0.2, name: sgd}]

two_merges
  params: {a: &a {n: 2_000}, b: &b {n: 50}, c: {<<: *a, <<: *b}}

merge_of_text
  params: {<<: text}

merge_of_a_list_of_text
  params: {<<: [text]}

integers
  params: {a: 010, b: 0o10, c: 0x1F, d: 1_000, e: -0, f: +5, g: 0b11, h: 190:20:30}

floats
  params: {a: 1e-3, b: 1.e3, c: .5, d: 1_0.5, e: 1.0, f: 5e-324, g: 0.1, h: 1:30.5, i: 1e22, j: 123456789012345680.0}

infinite
  params: {a: .inf}

too_large
  params: {a: 1e400}

too_large_an_integer
  params: {a: 9223372036854775808}

truths
  params: {a: yes, b: NO, c: On, d: off, e: true, f: y, g: n, h: 'yes', i: TRUE, j: [No, no, Yes]}

dates
  params: {a: 2024-01-01, b: 2024-01-01 10:00:00, c: '2024-01-01'}

nothing
  params: {a: null, b: ~, c: , d: NULL, e: '', f: 'null', g: [], h: {}}

texts
  params:
    a: |
      one
      two
    b: >-
      one
      two
    c: "\u00e9\x41\\n"
    d: 'it''s'
    e: =
    f: é 😀
    g: !!str 5
    h: $$ ${NOT_SET:-010} "

keys
  params: {'1': a, "yes": b, ? c : d}

keys_that_are_no_text
  params: {1: a, yes: b, 2024-01-01: c}

a_key_twice
  seed: 1
  seed: 2

a_tag_of_python
  params: {a: !!python/name:os.system }

an_alias_of_nothing
  params: {a: *gone}

two_documents
---
name: other

a_tab
	seed: 1

options
  optimizer: {name: sgd, learning_rate: 1e-1, momentum: null}
  seed: 0x10
"""
SOURCE = '''\
"""A text."""
from __future__ import annotations
import os.path as p, json
from . import sibling
from .sibling import (one, two as zwei)
__all__ = ["net"]
X: int = 0x_ff + 1_000 - 0b1 ** -2 // 3 @ 4 if not 1 < 2 <= 3 else ~5
Y = b"a\\x00" + rb"\\d", "" f"{X!r:>{len('w')}} {{}} {X=}" + "\\N{BULLET}é", ..., 1j, 1e400, None, True

@decorated(1, *X, key=2, **Y)
class Net(Base, metaclass=type):
    """Doc."""
    a = b = 1
    def method(self, a, /, b: int = 1, *args: int, c, d=None, **kw) -> None:
        """Doc."""
        global G
        nonlocal_ = lambda x, *y, z=1: (yield)
        a.b[1:2, ::3, ...] += {1, *args} | {**kw, "k": [*args]}
        del a.b, a[0]
        return

async def net(n):
    async with a as b, c:
        async for i in b:
            await i
    return [x async for x in n if x if not n], {x: y for x, y in n}, {x for x in n}, (x for x in n)

def flow(n):
    try:
        assert n, "text"
        while (m := n) and m or n:
            break
        else:
            pass
    except (A, B) as error:
        raise C from error
    except:
        raise
    else:
        for i, (j, *k) in n:
            continue
    finally:
        with open(n) as f, g() as (h, i):
            pass
    match n:
        case [1, *rest] | {"a": None, **more} if rest:
            pass
        case Net(a, b=-1 + 2j) as whole:
            yield from whole
        case _:
            x = yield
'''
# A pixel, red or blue; written out, as encoders differ.
PNG = "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000f494441547801010400fb"
RED = bytes.fromhex(f"{PNG}ff00ff0000030101008d1de5820000000049454e44ae426082")
BLUE = bytes.fromhex(f"{PNG}ff000000ff010301007cc274db0000000049454e44ae426082")
TABLE = "file,label\nré/1.png,010\nb.png,1e3\nré/2.png,yes\n10.png,2024-01-01\n9.png,yes\n"


def test_declarations(golden, tmp_path, monkeypatch):
    write_files(tmp_path, {"nets.py": "def net(**params): pass\n"})
    monkeypatch.chdir(tmp_path)
    found = []
    for each in ENDS.strip().split("\n\n"):
        name, end = each.split("\n", 1)
        Path("mine.yaml").write_text(f"{GOOD}{end}\n", encoding="utf-8")
        try:
            found += [name, *described(load("mine.yaml"))]
        except DeclarationError as error:
            found += [name, str(error)]
    golden("reading/declarations.txt", "\n".join([*found, ""]))


def test_data(golden, tmp_path):
    write_files(tmp_path / "folder", {f"{split}/{each}": RED for split in ("train", "test") for each in ("é/1.png",)})
    write_files(tmp_path / "folder", {f"{split}/b/{each}.png": BLUE for split in ("train", "test") for each in (10, 9)})
    images = {"ré/1.png": RED, "b.png": BLUE, "ré/2.png": RED, "10.png": BLUE, "9.png": BLUE}
    write_files(tmp_path / "table", {**images, "images.csv": TABLE})
    (tmp_path / "idx").mkdir()
    for number, split in enumerate(("train", "t10k")):
        labels = np.arange(6, dtype=np.uint8) % 3
        write_idx(tmp_path / "idx" / f"{split}-images-idx3-ubyte", np.full((6, 2, 2), 7 * number + 1, np.uint8))
        write_idx(tmp_path / "idx" / f"{split}-labels-idx1-ubyte", labels)
    found = {
        "idx": read(tmp_path / "idx", {"train": "train[:50%]", "eval": "test"}),
        "folder": read(tmp_path / "folder", {"train": "train", "eval": "test"}),
        "table": read(tmp_path / "table" / "images.csv", {"train": "train[:60%]", "eval": "train[60%:]"}),
    }
    golden("reading/data.txt", "".join(f"{name}\n{text}" for name, text in found.items()))


def test_source(golden, tmp_path):
    assert parse(SOURCE.encode())
    write_files(tmp_path, {"nets.py": SOURCE, "sibling.py": "one = two = 1\n"})
    folders = [str(tmp_path)]
    golden("reading/source.txt", f"{fingerprint_meaning('nets:net', folders)}\n")


def described(loaded: Loaded) -> Iterator[str]:
    """Yields each value after the common lines as it was read, with its line; and a hash of the Trainer's settings."""
    values = json.loads(loaded.declaration.to_json())
    for path, value in leaves(values):
        dotted = ".".join(path)
        file, _, line = loaded.origins[dotted].partition(":")
        if file == "mine.yaml" and int(line) > GOOD.count("\n"):
            yield f"  {dotted} = {json.dumps(value, ensure_ascii=False)}  # line {line}"
    trainer = Settings(declaration=values, source="source").to_properties()
    yield f"  key {hashlib.sha256(trainer[SETTINGS_KEY].encode()).hexdigest()}"


def read(dataset: Path, splits: dict[str, str]) -> str:
    """Describes a data set: its classes, each split's labels and sums of pixels, and a hash of ExampleGen's key."""
    section = DataSection.parse_obj({"dataset": str(dataset), "splits": splits})
    source = open_source(section)
    examples = {
        name: [(label, int(image.sum())) for part in parts for image, label in source.read(part)]
        for name, parts in source.resolve_disjoint().items()
    }
    properties = to_properties(section, source.fingerprint(list(splits.values())))
    del properties[LOCATION_KEY]
    key = hashlib.sha256(json.dumps(properties).encode()).hexdigest()
    return f"  {source.info.image_shape} {source.info.label_names}\n  {examples}\n  key {key}\n"
