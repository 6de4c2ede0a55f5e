"""Writes the site's pages of the declaration's keys and of the Python API: `python docs/site/reference.py FOLDER`."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

import tfx_estimator
from tfx_estimator import testing
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import Declaration, kinds, load
from tfx_estimator.pipeline.config.section import Section
from tfx_estimator.pipeline.config.yaml_text import inline

Steps = tuple[Any, ...]

_EXAMPLES = Path(__file__).with_name("examples.yaml")
_FUNCTIONS = ("trainer_fn(fn_args, schema)", "preprocessing_fn(inputs)", "small(num_classes, units)")
_CODE = "".join(f"def {function}: ...\n" for function in _FUNCTIONS)
_ROWS = "big_tip,fare,trip_start_hour,company\n0,2.5,3,a\n1,4.5,6,b\n0,3.5,3,a\n1,5.5,1,b\n"
# What the examples' declarations name.
_FILES = {
    **dict.fromkeys(("networks.py", "taxi_utils.py", "tf1_code.py"), _CODE),
    **dict.fromkeys(("trips.csv", "days/day-1/rows.csv"), _ROWS),
    **dict.fromkeys(("mean.npy", "words.txt", "schema.pbtxt", "photos/train/cat/1.png", "photos/test/cat/1.png"), ""),
    "backbone.weights.h5": "\x89HDF\r\n\x1a\n",
    **dict.fromkeys((f"served/variables/variables.{end}" for end in ("index", "data-00000-of-00001")), ""),
    "trained/model.ckpt-100.index": "",
}
# Every declaration has them.
_BASE = {"name", "data", "trainer"} | {
    *(f"data.{key}" for key in ("dataset", "csv", "parquet", "tfrecord", "label")),
    *(f"trainer.{key}" for key in ("model", "module_file", "train_steps", "train_epochs")),
}


class Place(NamedTuple):
    """A section, and the dotted paths that hold it."""

    section: type[Section]
    paths: list[str]


def places(path: str) -> list[Place]:
    """Returns the sections at and below a key of the declaration, each once."""
    found: dict[type[Section], Place] = {}

    def visit(kind: Any, at: str) -> None:
        for section in _inside(kind):
            found.setdefault(section, Place(section, [])).paths.append(at)
            for name, key in section.__fields__.items():
                visit(key.kind, f"{at}.{name}")

    visit(Declaration.__fields__[path].kind, path)
    return list(found.values())


def _inside(kind: Any) -> list[type[Section]]:
    each = (*kinds.alternatives(kinds.item_of(kind)), kinds.named_of(kind))
    return [one for one in each if kinds.is_section(one)]


class Examples:
    """The shortest valid declaration with a key, in a folder with the files that it names."""

    def __init__(self) -> None:
        self._whole = yaml.safe_load(_EXAMPLES.read_text(encoding="utf-8"))
        self._valid: dict[str, bool] = {}
        self.places: dict[tuple[type[Section], str], tuple[int, Steps]] = {}
        for number, each in enumerate(self._whole):
            for section, steps in _uses(each, Declaration, ()):
                self.places.setdefault((section, steps[-1]), (number, steps))

    def of(self, section: type[Section], name: str) -> str:
        """Returns the example of a key as YAML."""
        number, steps = self.places[section, name]
        whole, steps = _focused(self._whole[number], steps)
        assert self.is_valid(whole), f"{_EXAMPLES.name}: {whole}"
        return _dump(
            self._shortened(whole, [path for path in _removable(whole, steps) if ".".join(map(str, path)) not in _BASE])
        )

    def _shortened(self, kept: Any, paths: list[Steps]) -> Any:
        """Returns a declaration without all that it can do without."""
        less = functools.reduce(_without, paths, kept)
        if self.is_valid(less):
            return less
        if len(paths) == 1:
            return kept
        half = len(paths) // 2
        return self._shortened(self._shortened(kept, paths[:half]), paths[half:])

    def is_valid(self, declaration: dict[str, Any]) -> bool:
        """Returns whether a declaration loads without a warning."""
        text = _dump(declaration)
        if text not in self._valid:
            Path("example.yaml").write_text(text, encoding="utf-8")
            try:
                self._valid[text] = not load("example.yaml").warnings
            except DeclarationError:
                self._valid[text] = False
        return self._valid[text]


@contextlib.contextmanager
def folder_of_examples() -> Iterator[None]:
    """Enters a folder with the files that the examples name."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        for name, text in _FILES.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("latin-1"))
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def _uses(value: Any, section: type[Section], steps: Steps) -> Iterator[tuple[type[Section], Steps]]:
    """Yields the section of each key in a value, and the steps to it."""
    for name in value.keys() & section.__fields__.keys():
        kind, at = section.__fields__[name].kind, (*steps, name)
        yield section, at
        inside = _inside(kind)
        items: list[tuple[Steps, Any]] = [((), value[name])]
        if isinstance(value[name], list):
            items = [((index,), each) for index, each in enumerate(value[name])]
        elif kinds.named_of(kind):
            items = [((key,), each) for key, each in value[name].items()]
        for step, each in items:
            for one in inside if isinstance(each, dict) else ():
                yield from _uses(each, one, (*at, *step))


def _focused(value: Any, steps: Steps) -> tuple[Any, Steps]:
    """Returns a value with only those items of lists that the steps go through, and the steps to the same key."""
    if not steps:
        return value, ()
    here = 0 if isinstance(value, list) else steps[0]
    inside, rest = _focused(value[steps[0]], steps[1:])
    return ([inside] if isinstance(value, list) else {**value, here: inside}), (here, *rest)


def _removable(value: Any, steps: Steps, at: Steps = ()) -> Iterator[Steps]:
    """Yields the paths of a value's keys that the one at `steps` is not in, whole mappings first."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    # What others need, such as a model or a path, is usually before them.
    for name, each in reversed([*items]):
        path = (*at, name)
        if isinstance(value, dict) and len(value) > 1 and path != steps[: len(path)]:
            yield path
        if path != steps:
            yield from _removable(each, steps, path)


def _without(value: Any, path: Steps) -> Any:
    """Returns a value without the key at a path, if it has it."""
    if isinstance(value, list):
        return [_without(each, path[1:]) if index == path[0] else each for index, each in enumerate(value)]
    if len(path) == 1:
        return {name: each for name, each in value.items() if name != path[0]}
    return {name: _without(each, path[1:]) if name == path[0] else each for name, each in value.items()}


def _dump(value: Any) -> str:
    return yaml.dump(value, Dumper=_Dumper, default_flow_style=None, sort_keys=False, width=100)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def key_pages(examples: Examples) -> Iterator[tuple[str, str]]:
    """Yields the name and the text of each page of keys."""
    lines = [f"# Every key\n\n{inspect.getdoc(Declaration)}\n"]
    for name, key in Declaration.__fields__.items():
        sections = _inside(key.kind)
        if not sections:
            lines.append(_entry(Declaration, "", name, examples))
            continue
        about = key.description or (inspect.getdoc(sections[0]) or "").partition("\n")[0]
        lines.append(f"- [`{name}`]({name}.md): {about}")
        found = places(name)
        yield f"keys/{name}.md", "\n".join(_section(place, found, examples) for place in found)
    yield "keys/index.md", "\n".join(lines) + "\n"


def _section(place: Place, found: list[Place], examples: Examples) -> str:
    (first, *others), level = place.paths, "##" if "." in place.paths[0] else "#"
    lines = [f"{level} {first} {{ #{first} }}\n", f"{_escaped(inspect.getdoc(place.section) or '')}\n"]
    if others:
        lines.append(f"{', '.join(f'`{path}`' for path in others)} {'have' if others[1:] else 'has'} the same keys.\n")
    heads = {each.section: each.paths[0] for each in found}
    for name, key in place.section.__fields__.items():
        if inside := _inside(key.kind):
            links = ", ".join(f"[its keys](#{heads[each]})" for each in inside)
            lines.append(f"`{name}`{': ' * bool(key.description)}{_escaped(key.description)} ({links})\n")
        else:
            lines.append(_entry(place.section, f"{first}.", name, examples, f"{level}#"))
    return "\n".join(lines)


def _entry(section: type[Section], prefix: str, name: str, examples: Examples, level: str = "##") -> str:
    key, path = section.__fields__[name], f"{prefix}{name}"
    default = "**required**" if key.required else f"**default** `{inline(key.default)}`"
    null = ", or null" if key.allow_none else ""
    # Those of `files` are compared with what a run has read.
    also = " · a change of it reruns nothing" if key.operational and name != "files" else ""
    lines = [
        f"{level} {path} {{ #{path} data-toc-label='{name}' }}\n",
        f"{_escaped(key.description[:1].upper() + key.description[1:])}.\n" if key.description else "",
        f"**takes** {kinds.describe(key.kind)}{null} · {default}{also}\n",
        f"``` {{.yaml data-search-exclude}}\n{examples.of(section, name)}```\n",
    ]
    return "\n".join(filter(None, lines))


def _escaped(text: str) -> str:
    """Returns a text whose stars and brackets outside of code are no Markdown."""
    return re.sub(r"(`[^`]*`)|([*<])", lambda found: found[1] or f"\\{found[2]}", text)


def api_pages() -> Iterator[tuple[str, str]]:
    """Yields the name and the text of each page of the Python API, whose docstrings mkdocstrings fills in."""
    for module, folder in ((tfx_estimator, ""), (testing, "pipeline.testing.")):
        first, *paragraphs = (module.__doc__ or "").split("\n\n")
        lines, heading = [f"# {module.__name__}\n\n{first}\n"], ""
        for paragraph in paragraphs:
            if not paragraph.startswith("    "):
                heading = paragraph.strip()
                continue
            names = [line.split()[0] for line in paragraph.splitlines()]
            if heading.endswith(":") and set(names) <= {*module.__all__}:
                lines.append(f"## {heading.rstrip(':')}\n")
                places = (
                    f"tfx_estimator.{folder}{module._PLACES[name]}." if folder else "tfx_estimator." for name in names
                )
                lines += [f"::: {place}{name}\n" for place, name in zip(places, names)]
        yield f"api/{module.__name__}.md", "\n".join(lines)


if __name__ == "__main__":
    with folder_of_examples():
        pages = {**dict(key_pages(Examples())), **dict(api_pages())}
    for file, text in pages.items():
        path = Path(sys.argv[1], file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
