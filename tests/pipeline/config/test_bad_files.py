"""Files that hold no declaration, or are none."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import load

pytestmark = pytest.mark.unit


TEXTS = [
    ("", ["mine.yaml:1", "it is empty", "tfx-estimator copy digits mine.yaml"]),
    ("# only a comment\n", ["it is empty"]),
    ("just text\n", ["it holds just text, no mapping"]),
    ("name: [mine\n", ["mine.yaml:2", "flow sequence", "brackets"]),
    ("name: a\nname: b\n", ["mine.yaml:2  name", "stands in line 1 already", "data\n", "this key is missing"]),
    ("name: a\ndata:\n\tdataset: b\n", ["mine.yaml:3", "cannot start any token", "indented by spaces"]),
    ("name: a: b\n", ["mine.yaml:1", "mapping values are not allowed", "quotes"]),
    ("name: a\n---\nname: b\n", ["mine.yaml:2", "single document"]),
    ("name: *nobody\n", ["undefined alias"]),
    ("a: &a [*a]\n", ["recursion"]),
    ("name: é\nb:\n  \x01\n", ["control characters are not allowed"]),
    ("yes: 1\n", ["the key 'yes' is no text", 'put it in quotes: "yes"']),
    ("name: !!python/object/apply:os.system ['touch pwned']\n", ["tag:yaml.org,2002:python/object/apply:os.system"]),
    ("name: !mine x\n", ["mine.yaml:1", "!mine"]),
    ('name: "\\UFFFFFFFF"\n', ["mine.yaml:1\n", "escape code"]),
    ("<<: 5\n", ["mine.yaml:1", "for merging"]),
]


@pytest.mark.parametrize(("text", "parts"), TEXTS, ids=lambda value: repr(value)[:40])
def test_a_damaged_file(refuse, tmp_path, text, parts):
    message = refuse(text)
    for part in parts:
        assert part in message
    assert not (tmp_path / "pwned").exists()


def test_missing_files_are_refused_with_the_nearest_name(write, good):
    write(good)
    for source, parts in {
        "digit": ["there is no declaration digit", "did you mean the preset `digits`?"],
        "mnie.yaml": ["did you mean `mine.yaml`?"],
        "zzz/zzz.yaml": ["one of the presets digits, mnist, cifar10, cifar10_resnet", "tfx-estimator presets"],
        ".": ["cannot be read: Is a directory"],
    }.items():
        with pytest.raises(DeclarationError) as caught:
            load(source)
        for part in parts:
            assert part in str(caught.value)


def test_bytes_that_are_not_utf8_are_named_with_their_line(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_bytes("name: mine\n# caf\xe9\n".encode("latin-1"))
    with pytest.raises(DeclarationError, match=r"mine.yaml:2 is not UTF-8: byte 0xe9"):
        load(file)
    file.write_bytes("name: mine".encode("utf-16"))
    with pytest.raises(DeclarationError, match=r"mine.yaml:1 is not UTF-8"):
        load(file)
