"""A declaration being loaded: values of presets and files, merged with overrides, and their problems."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tfx_estimator.pipeline import presets
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.files import names_in
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.checks import check
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.explain import explain, find_field
from tfx_estimator.pipeline.config.kinds import is_section
from tfx_estimator.pipeline.config.paths import find_unresolved, resolve_paths
from tfx_estimator.pipeline.config.pod_patch import PATCH, read_files
from tfx_estimator.pipeline.config.problems import OVERRIDE, Problem, nearest, to_error
from tfx_estimator.pipeline.config.put_values import put
from tfx_estimator.pipeline.config.rules.rule import Case
from tfx_estimator.pipeline.config.section import Section, ValuesError
from tfx_estimator.pipeline.config.tune import RANGES
from tfx_estimator.pipeline.config.tune_checks import check_tune
from tfx_estimator.pipeline.config.yaml_text import Document, Path, inline, read_yaml

DEFAULT = "default"
_SUFFIXES = (".yaml", ".yml")
_FORM = "`key.path=value`, the value as YAML: trainer.train_steps=500"
# Joins several sources.
_AND = "+"
_STANDARD_INPUT = "-"
# Prefix of top-level keys that only hold anchors.
FREE = "x-"


@dataclass(frozen=True)
class Part:
    """One preset or file of a declaration."""

    file: str
    # Base of its relative paths.
    folder: str
    # Its names in messages and in comments.
    label: str
    short_label: str


@dataclass(frozen=True)
class Line:
    """The position of a value."""

    part: Part
    number: int


@dataclass(frozen=True)
class SourceText:
    """The merged presets and files that the user named; later ones override."""

    source: str
    parts: tuple[Part, ...]
    values: dict[str, Any]
    lines: dict[Path, Line]
    problems: list[Problem]


def join_sources(sources: Sequence[str]) -> str:
    """Joins several sources into one name, which `read_source` splits."""
    return _AND.join(sources)


def read_source(source: str) -> SourceText:
    """Reads and merges presets and files; collects their problems without raising them."""
    read = [_read_part(each, source) for each in _split(source)]
    first, document = read[0]
    values, lines = document.value, {path: Line(first, number) for path, number in document.lines.items()}
    for part, other in read[1:]:
        theirs = {path: Line(part, number) for path, number in other.lines.items()}
        _merge(values, other.value, lines, theirs, other.empty)
    parts, problems = tuple(part for part, _ in read), [problem for _, each in read for problem in each.problems]
    return SourceText(source, parts, values, lines, problems)


def _split(source: str) -> list[str]:
    """Splits joined sources; a file's name may contain `+` itself."""
    found, rest = [], source.split(_AND)
    while rest:
        names = ((count, _AND.join(rest[:count])) for count in range(len(rest), 0, -1))
        count, name = next(each for each in names if each[0] == 1 or os.path.exists(_absolute(each[1])))
        found.append(name)
        rest = rest[count:]
    return found


def _merge(
    held: dict[str, Any], other: dict[str, Any], lines: dict[Path, Line], theirs: dict[Path, Line], empty: set[Path]
) -> None:
    """Merges values in place: mappings key by key, anything else as a whole; `empty` keys override nothing."""

    def merge(held: dict[str, Any], other: dict[str, Any], path: Path) -> None:
        for key, value in other.items():
            place, field = (*path, key), find_field((*path, key))
            section = field if field is not None and is_section(field.kind) else None
            # Expand a short form that a mapping overrides; a short form on top replaces the whole value.
            is_below = key in held and (value is None or isinstance(value, dict))
            if is_below and section and section.expand and not isinstance(held[key], dict):
                held[key] = section.expand(held[key])
                _set_lines(held[key], lines, place)
            is_mapping = isinstance(held.get(key), dict)
            if is_mapping and isinstance(value, dict):
                merge(held[key], value, place)
            elif is_mapping and value is None and (place in empty or (section and not section.allow_none)):
                # A section whose keys are all commented out. An explicit `null` disables an optional section.
                theirs.pop(place, None)
            else:
                held[key] = value
                for gone in [each for each in lines if each[: len(place)] == place]:
                    del lines[gone]

    merge(held, other, ())
    lines.update(theirs)


def _read_part(source: str, whole: str) -> tuple[Part, Document]:
    is_preset, is_input = source in presets.names(), source == _STANDARD_INPUT
    shown = "standard input" if is_input else one_line(source)
    file = source if is_input else str(presets.path(source)) if is_preset else _absolute(source)
    label = f"preset {source}" if is_preset else shown
    # Presets do not read the environment.
    document = read_yaml(_read_text(source, file, shown), label, None if is_preset else os.environ)
    if not isinstance(document.value, dict):
        if not document.problems:
            is_empty = document.value is None
            what = "it is empty" if is_empty else f"it holds {inline(document.value)[:60]}, not a mapping"
            name = shown if is_empty and not is_input else "FILE"
            todo = f"start from a preset: tfx-estimator copy {presets.names()[0]} {name}"
            document.problems.append(Problem("", what, "a mapping with name, data and trainer", todo, f"{label}:1"))
        raise to_error(document.problems, whole)
    for key in [key for key in document.value if key.startswith(FREE)]:
        del document.value[key]
    folder = os.getcwd() if is_preset or is_input else os.path.dirname(file)
    # Several files may share a name.
    short_label = label if is_preset or is_input or whole != source else one_line(os.path.basename(file))
    return Part(file, folder, label, short_label), document


@functools.cache
def _read_input() -> bytes:
    """Returns standard input, cached: it can be read only once, but a declaration may be loaded several times."""
    return sys.stdin.buffer.read()


def _read_text(source: str, file: str, shown: str) -> str:
    expected = f"a YAML file, or one of the presets {', '.join(presets.names())}"
    try:
        content = _read_input() if source == _STANDARD_INPUT else pathlib.Path(file).read_bytes()
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        what, todo = f"there is no declaration {shown}", _missing_hint(source, file)
        raise DeclarationError(what, expected=expected, todo=todo) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        what = f"{shown}:{line} is not UTF-8: byte 0x{error.object[error.start]:02x}"
        raise DeclarationError(what, expected="UTF-8 text", todo="save the file as UTF-8") from error
    except (OSError, ValueError) as error:
        what = f"{shown} cannot be read: {getattr(error, 'strerror', error)}"
        raise DeclarationError(what, expected=expected, todo="name the YAML file, and check its permissions") from error


def _absolute(source: str) -> str:
    return os.path.normpath(os.path.join(os.getcwd(), os.path.expanduser(source)))


def _missing_hint(source: str, file: str) -> str:
    # Compare without the suffix that all names share.
    files = {os.path.splitext(name)[0]: name for name in names_in(os.path.dirname(file)) if name.endswith(_SUFFIXES)}
    if near := nearest(source, presets.names()):
        return f"did you mean the preset `{near}`?"
    if near := nearest(os.path.splitext(os.path.basename(source))[0], files):
        return f"did you mean `{os.path.join(os.path.dirname(source), files[near])}`?"
    return "check the path of the file; or list the presets: tfx-estimator presets"


@dataclass
class Draft:
    """The values of a declaration with overrides applied, and their problems."""

    text: SourceText
    values: dict[str, Any] = field(init=False)
    problems: list[Problem] = field(init=False)
    # Overridden path -> override.
    overridden: dict[Path, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.values = self.text.values
        self.problems = list(self.text.problems)
        # Later files override, also for modules.
        folders = [part.folder for part in reversed(self.text.parts)]
        self.search_paths = tuple(dict.fromkeys((*folders, os.getcwd())))
        _expand_all(self.values, self.text.lines)

    def override(self, text: str) -> None:
        """Applies one `key.path=value` of `--set`; the last one for a key wins."""
        key, equals, written = text.partition("=")
        path = tuple(part.strip() for part in key.split("."))
        where = f"{OVERRIDE}{text}"
        document = read_yaml(written, where, os.environ)
        if not equals:
            todo = f"write {OVERRIDE}{key}=VALUE"
            self.problems.append(Problem("", "the override has no `=`", _FORM, todo, where))
        elif not all(path):
            self.problems.append(Problem("", "the override's key has an empty part", _FORM, "name a key", where))
        elif document.problems:
            problem, expected = document.problems[0], "a YAML value"
            todo = f"quote the value for YAML, and the whole for the shell: {OVERRIDE}'{key}=\"...\"'"
            if document.value is not None:  # an invalid value, not invalid YAML
                expected, todo = problem.expected, problem.todo
            self.problems.append(Problem(".".join(path), problem.what, expected, todo, where))
        else:
            self.values, problems = put(self.values, {".".join(path): document.value})
            self.problems += [dataclasses.replace(problem, where=where) for problem in problems]
            if not problems:
                _expand_all(self.values, self.text.lines)
                self.overridden[path] = where

    def resolve_paths(self) -> set[Path]:
        """Makes paths absolute, and reads the files of pod_patch; returns the paths that changed."""
        for path, value, what in find_unresolved(self.values):
            key, expected = ".".join(path), "no shell variable or user name"
            todo = "write ${NAME}, or the value itself"
            self.problems.append(Problem(key, what, expected, todo, self.where(path), value))
        bases = {path: line.part.folder for path, line in self.text.lines.items() if not self._override_of(path)}
        changed = resolve_paths(self.values, bases)
        for problem in read_files(self.values):
            self.problems.append(dataclasses.replace(problem, where=problem.where or self.where(PATCH)))
        return changed

    def validate(self, target: str) -> Case:
        """Parses and checks the values, and collects every problem; invalid values become defaults in the result."""
        wrong: list[str] = [problem.path for problem in self.problems if problem.path]
        try:
            declaration = Declaration.parse_obj(self.values)
        except ValuesError as error:
            for each in error.found:
                problem = explain(each, self.values, self.where)
                # A key whose YAML value is invalid is not reported twice.
                if (problem.path, problem.where) not in {(known.path, known.where) for known in self.problems}:
                    self.problems.append(problem)
                wrong.append(".".join(each.path))
            declaration = error.rest  # type: ignore[assignment]
        case = Case(declaration, self.search_paths, target)
        for problem in (*check(case), *check_tune(case)):
            about = (problem.path, *problem.depends)
            if not any(_is_part(path, bad) for path in about for bad in wrong):
                where = self.where(_path_of(problem.path))
                self.problems.append(dataclasses.replace(problem, where=where))
        return case

    def where(self, path: Path) -> str:
        """Returns the position of a value: its override, its line, or for a default the enclosing section's line."""
        line = self.line(path)
        return self._override_of(path) or self._maker_of(path) or f"{line.part.label}:{line.number}"

    def line(self, path: Path) -> Line:
        """Returns the line of a value, or of the nearest enclosing section."""
        lines = self.text.lines
        while path and path not in lines:
            path = path[:-1]
        return lines.get(path) or Line(self.text.parts[-1], 1)

    def origin(self, path: Path) -> str:
        """Returns where a value came from."""
        if self._override_of(path):
            # The override replaced the whole section, so its other keys are defaults.
            return OVERRIDE.strip() if self.is_written(path) else DEFAULT
        line = self.text.lines.get(path)
        return f"{line.part.short_label}:{line.number}" if line else DEFAULT

    def is_written(self, path: Path) -> bool:
        """Returns whether a file or an override gives a value."""
        values: Any = self.values
        for key in path:
            if not isinstance(values, dict) or key not in values:
                return False
            values = values[key]
        return True

    def _override_of(self, path: Path) -> str:
        found = (self.overridden.get(path[:length], "") for length in range(len(path), 0, -1))
        return next(filter(None, found), "")

    def _maker_of(self, path: Path) -> str:
        """Returns the first override inside a section that only overrides create; else nothing."""
        if path in self.text.lines or not self.is_written(path):
            return ""
        return next((override for whole, override in self.overridden.items() if whole[: len(path)] == path), "")

    def sorted_problems(self) -> list[Problem]:
        """Returns the problems in file order, overrides last."""
        labels = [part.label for part in self.text.parts]

        def place(problem: Problem) -> tuple[bool, int, int]:
            label, _, line = problem.where.rpartition(":")
            is_override = problem.where.startswith(OVERRIDE)
            file = labels.index(label) if label in labels else 0
            return is_override, file, int(line) if line.isdigit() else 0

        return sorted(self.problems, key=place)


def _expand_all(values: Any, lines: dict[Path, Line], section: type[Section] = Declaration, path: Path = ()) -> None:
    """Expands short forms in place; the new keys get the lines of the short form."""
    for key, value in values.items() if isinstance(values, dict) else ():
        if field := section.__fields__.get(key):
            if field.expand is not None and (expanded := field.expand(value)) != value:
                values[key] = expanded
                _set_lines(expanded, lines, (*path, key))
            if is_section(field.kind):
                _expand_all(values[key], lines, field.kind, (*path, key))


def _set_lines(value: Any, lines: dict[Path, Line], path: Path) -> None:
    """Gives keys without a line that of their section, or of the first part of their dotted name."""
    for key, item in value.items() if isinstance(value, dict) else ():
        # A range's dotted path may have been written as nested sections.
        line = lines.get((*path, *key.split(".")), lines.get(path))
        if line is not None:
            lines.setdefault((*path, key), line)
            _set_lines(item, lines, (*path, key))


def _path_of(dotted: str) -> Path:
    """Splits a dotted path into keys; a range's name is one key despite its dots."""
    if not dotted.startswith(f"{RANGES}."):
        return tuple(dotted.split("."))
    name = dotted.removeprefix(f"{RANGES}.")
    return (*RANGES.split("."), name)


def _is_part(path: str, bad: str) -> bool:
    return path == bad or path.startswith(f"{bad}.") or bad.startswith(f"{path}.")
