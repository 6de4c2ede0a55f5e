"""YAML as the declaration reads and writes it: safe, with the place of each value, and no surprises of YAML 1.1."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.problems import Problem, shorten

Path = tuple[str, ...]

_TAG = "tag:yaml.org,2002:"
# Comments further right than this would hide the values.
_MAX_COLUMN = 60
_INT = re.compile(r"^[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F]+)$")
# YAML 1.1, and so PyYAML, reads `1e-3` as text.
_FLOAT = re.compile(
    r"^[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+"
    r"|\.(?:inf|Inf|INF))$|^\.(?:nan|NaN|NAN)$"
)


# `$$` is a dollar sign; in braces stands what is asked for.
_ASKED = re.compile(r"\$\$|\$\{([^}\n]*)(\}?)")
# A default holds no other variable.
_VARIABLE = re.compile(r"([A-Za-z_]\w*)(?::-((?:(?!\$\{).)*))?", re.ASCII)
# Between these, while YAML is read, stands the number of such a place: braces would be structure in `{a: ${B}}`, and
# what the environment holds must never be. They are characters for private use.
_OPEN, _CLOSE = "\uf6d0", "\uf6d1"
_PLACE = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")


class _Loader(yaml.CSafeLoader):
    """Reads no dates, no base 60 and no leading-zero octals: they would be surprises."""

    yaml_implicit_resolvers: dict[str, list] = {}


class _Dumper(yaml.SafeDumper):
    """Quotes what either this loader or any YAML 1.1 loader would not read as text."""

    yaml_implicit_resolvers = {key: list(value) for key, value in yaml.SafeDumper.yaml_implicit_resolvers.items()}

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _kind in ("null", "bool", "merge"):
    for _first, _pairs in yaml.SafeLoader.yaml_implicit_resolvers.items():
        for _tag, _regexp in _pairs:
            if _tag == _TAG + _kind:
                _Loader.yaml_implicit_resolvers.setdefault(_first, []).append((_tag, _regexp))
for _class in (_Loader, _Dumper):
    _class.add_implicit_resolver(_TAG + "int", _INT, list("-+0123456789"))
    _class.add_implicit_resolver(_TAG + "float", _FLOAT, list("-+.0123456789"))


_REPRESENTER = yaml.representer.SafeRepresenter()


@dataclass
class Document:
    """What one YAML text says, and what is wrong with it as YAML."""

    value: Any = None
    # Of each key, by its path; the whole text's under `()`.
    lines: dict[Path, int] = field(default_factory=dict)
    # Keys after which nothing stands, not even `null`.
    empty: set[Path] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)


def read_yaml(text: str, source: str, environment: Mapping[str, str] | None = None) -> Document:
    """Reads one YAML document; where it is none, without a value. Never raises on what the text holds.

    Args:
        environment: What `${NAME}` stands for; None if it is text as any other.
    """
    document = Document()
    asked: list[re.Match[str]] = []
    unset: dict[int, list[str]] = {}  # by node: an alias leads to it once more

    def set_aside(found: re.Match[str]) -> str:
        asked.append(found)
        return f"{_OPEN}{len(asked) - 1}{_CLOSE}"

    if environment is not None:
        text = _ASKED.sub(set_aside, text)

    def fill(node: yaml.Node, path: Path) -> None:
        """Puts what the environment holds into a scalar; what stands in no quotes is then read as YAML."""
        if isinstance(node, yaml.ScalarNode) and asked and _PLACE.search(node.value):
            missing = unset.setdefault(id(node), [])
            node.value = _PLACE.sub(
                lambda place: _replace(asked[int(place[1])], environment or {}, missing), node.value
            )
            if not node.style and node.tag == _TAG + "str" and node.value not in ("", "<<"):
                node.tag = loader.resolve(yaml.ScalarNode, node.value, (True, False))
        for what in unset.get(id(node), ()):
            line, is_name = node.start_mark.line + 1, what.startswith("${")
            reason = f"{what}: this names no variable of the environment" if is_name else f"{what} is not set"
            todo = "write $${ for the text itself" if is_name else f"set {what}, or write ${{{what}:-DEFAULT}}"
            refuse(path, line, reason, "${NAME}, which is set; or ${NAME:-default}", todo)

    def refuse(path: Path, line: int, what: str, expected: str, todo: str) -> None:
        document.problems.append(Problem(".".join(path), what, expected, todo, where=f"{source}:{line}"))

    def look_at(node: yaml.Node, path: Path) -> None:
        """Notes the lines of a node and of all in it, and takes keys out of it that are no text."""
        document.lines.setdefault(path, node.start_mark.line + 1)
        fill(node, path)
        if node.tag == _TAG + "null" and not node.value:
            document.empty.add(path)
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                look_at(item, (*path, str(index)))
        if not isinstance(node, yaml.MappingNode):
            return
        seen: dict[str, int] = {}
        for key_node, value in node.value:
            fill(key_node, path)
            key, line = key_node.value, key_node.start_mark.line + 1
            if key_node.tag == _TAG + "str":
                if key in seen:
                    what = f"this key stands in line {seen[key]} already"
                    refuse((*path, key), line, what, "each key once", "keep one")
                seen[key] = line
                document.lines.setdefault((*path, key), line)
                look_at(value, (*path, key))
            elif key_node.tag != _TAG + "merge":
                key = shorten(str(key)) if isinstance(key_node, yaml.ScalarNode) else "a list or mapping"
                refuse(path, line, f"the key {key!r} is no text", "a name", f'put it in quotes: "{key}"')
        merged = [value for key, value in node.value if key.tag == _TAG + "merge"]
        for each in merged:
            look_at(each, path)
        node.value = [(key, value) for key, value in node.value if key.tag in (_TAG + "str", _TAG + "merge")]

    try:
        loader = _Loader(text)
        if (root := loader.get_single_node()) is not None:
            look_at(root, ())
            document.value = loader.construct_document(root)
    # What is no value of its tag, as `!!bool maybe`, and what is too large or too deep, PyYAML answers with others.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, OverflowError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        what = " ".join(filter(None, (getattr(error, key, None) for key in ("context", "problem")))) or str(error)
        todo = "check indentation, quotes and brackets around this line"
        refuse((), mark.line + 1 if mark else 1, what, "YAML of plain values, indented by spaces", todo)
    return document


def _replace(found: re.Match[str], environment: Mapping[str, str], missing: list[str]) -> str:
    """What a place stands for; a name that stands for nothing is noted."""
    if found[0] == "$$":
        return "$"
    named = _VARIABLE.fullmatch(found[1]) if found[2] else None
    if named is None:
        missing.append(found[0])
        return ""
    # As in a shell, an empty variable has the default, too.
    value = environment.get(named[1]) or named[2] or environment.get(named[1])
    if value is None and named[2] is None:
        missing.append(named[1])
    return value or ""


def inline(value: Any) -> str:
    """Writes a value as YAML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{inline(key)}: {inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(inline, value)) + "]"
    if type(value) in (int, float):
        # Of which there may be as many as a file holds.
        return _REPRESENTER.represent_data(value).value
    # In a flow list the dumper quotes everything that could be taken for structure. What is not printable needs the
    # escapes of double quotes: line breaks, lone surrogates, what a terminal would obey.
    plain = not isinstance(value, str) or value.isprintable()
    style = None if plain else '"'
    text = yaml.dump(
        [value], Dumper=_Dumper, default_flow_style=True, default_style=style, allow_unicode=plain, width=2**31 - 1
    )
    # Read with an environment, it is to be the same text.
    return re.sub(r"\$(?=[${])", "$$", text.strip()[1:-1])


def render(values: Mapping[str, Any], origins: Mapping[str, str] | None = None) -> str:
    """Writes values as block YAML, one a line, which loads to the same; origins, by path, become aligned comments."""
    lines = list(_lines(values, 0, ()))
    if origins is None:
        return "".join(f"{text}\n" for text, _ in lines)
    comments = [one_line(origins.get(path, "")) if path else "" for _, path in lines]
    widths = [len(text) for (text, _), comment in zip(lines, comments) if comment and len(text) <= _MAX_COLUMN]
    column = max(widths, default=0)
    rows = (f"{text:{column}}  # {comment}" if comment else text for (text, _), comment in zip(lines, comments))
    return "".join(f"{row}\n" for row in rows)


def leaves(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields (path, value) of every value that is no section; an empty section counts as a value."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def texts(values: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yields (path, text) of every text, those in lists too."""
    if isinstance(values, str):
        yield path, values
    elif isinstance(values, (Mapping, list, tuple)):
        for key, value in values.items() if isinstance(values, Mapping) else enumerate(values):
            yield from texts(value, (*path, str(key)))


def _lines(values: Mapping[str, Any], depth: int, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(line, dotted path of its value, empty for a section's own line)."""
    for key, value in values.items():
        head = "  " * depth + inline(key) + ":"
        if isinstance(value, Mapping) and value:
            yield head, ""
            yield from _lines(value, depth + 1, (*path, key))
        else:
            yield f"{head} {inline(value)}", ".".join((*path, key))
