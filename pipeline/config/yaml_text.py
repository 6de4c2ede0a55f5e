"""Reads and writes the declaration's YAML: safely, with each value's line, and without YAML 1.1's surprises."""

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


# `$$` is a dollar sign; `${NAME}` is a variable.
_REFERENCE = re.compile(r"\$\$|\$\{([^}\n]*)(\}?)")
# A default cannot contain another variable.
_VARIABLE = re.compile(r"([A-Za-z_]\w*)(?::-((?:(?!\$\{).)*))?", re.ASCII)
# While YAML is parsed, private-use characters around an index stand for each reference: braces would be structure in
# `{a: ${B}}`, and the environment's values must never be.
_OPEN, _CLOSE = "\uf6d0", "\uf6d1"
_PLACE = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")


class _Loader(yaml.CSafeLoader):
    """Reads no dates, base 60 numbers or leading-zero octals."""

    yaml_implicit_resolvers: dict[str, list] = {}


class _Dumper(yaml.SafeDumper):
    """Quotes texts that this loader or any YAML 1.1 loader would read as another type."""

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
    """The value of one YAML text, and its problems as YAML."""

    value: Any = None
    # The line of each key, by its path; that of the whole text under `()`.
    lines: dict[Path, int] = field(default_factory=dict)
    # Keys followed by nothing, not even `null`.
    empty: set[Path] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)


def read_yaml(text: str, source: str, environment: Mapping[str, str] | None = None) -> Document:
    """Reads one YAML document; never raises, but collects problems.

    Args:
        environment: The variables for `${NAME}`; None takes it as plain text.
    """
    document = Document()
    references: list[re.Match[str]] = []
    unset: dict[int, list[str]] = {}  # by node: an alias visits it again

    def set_aside(found: re.Match[str]) -> str:
        references.append(found)
        return f"{_OPEN}{len(references) - 1}{_CLOSE}"

    if environment is not None:
        text = _REFERENCE.sub(set_aside, text)

    def fill(node: yaml.Node, path: Path) -> None:
        """Substitutes variables in a scalar; an unquoted one is then typed as YAML."""
        if isinstance(node, yaml.ScalarNode) and references and _PLACE.search(node.value):
            missing = unset.setdefault(id(node), [])
            node.value = _PLACE.sub(
                lambda place: _substitute(references[int(place[1])], environment or {}, missing), node.value
            )
            if not node.style and node.tag == _TAG + "str" and node.value not in ("", "<<"):
                node.tag = loader.resolve(yaml.ScalarNode, node.value, (True, False))
        for what in unset.get(id(node), ()):
            line, is_name = node.start_mark.line + 1, what.startswith("${")
            reason = f"{what}: this is not a variable's name" if is_name else f"{what} is not set"
            todo = "write $${ for the text itself" if is_name else f"set {what}, or write ${{{what}:-DEFAULT}}"
            refuse(path, line, reason, "${NAME}, which is set; or ${NAME:-default}", todo)

    def refuse(path: Path, line: int, what: str, expected: str, todo: str) -> None:
        document.problems.append(Problem(".".join(path), what, expected, todo, where=f"{source}:{line}"))

    def visit(node: yaml.Node, path: Path) -> None:
        """Records the lines of a node and its children, and removes keys that are not text."""
        document.lines.setdefault(path, node.start_mark.line + 1)
        fill(node, path)
        if node.tag == _TAG + "null" and not node.value:
            document.empty.add(path)
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                visit(item, (*path, str(index)))
        if not isinstance(node, yaml.MappingNode):
            return
        seen: dict[str, int] = {}
        for key_node, value in node.value:
            fill(key_node, path)
            key, line = key_node.value, key_node.start_mark.line + 1
            if key_node.tag in (_TAG + "str", _TAG + "merge"):
                if key in seen:
                    what = f"this key is in line {seen[key]} already"
                    refuse((*path, key), line, what, "each key once", "keep one")
                seen[key] = line
            if key_node.tag == _TAG + "str":
                document.lines.setdefault((*path, key), line)
                visit(value, (*path, key))
            elif key_node.tag != _TAG + "merge":
                key = shorten(str(key)) if isinstance(key_node, yaml.ScalarNode) else "a list or mapping"
                refuse(path, line, f"the key {key!r} is no text", "a name", f'put it in quotes: "{key}"')
        merges = [value for key, value in node.value if key.tag == _TAG + "merge"]
        merged = [part for each in merges for part in (each.value if isinstance(each, yaml.SequenceNode) else [each])]
        for each in merged:
            visit(each, path)
        node.value = [(key, value) for key, value in node.value if key.tag in (_TAG + "str", _TAG + "merge")]
        # PyYAML refuses anything else. Of several mappings its releases prefer the first or the last one.
        if merged and all(isinstance(each, yaml.MappingNode) for each in merged):
            pairs = [pair for each in (*reversed(merged), node) for pair in each.value if pair[0].tag == _TAG + "str"]
            node.value = list({key.value: (key, value) for key, value in pairs}.values())

    try:
        loader = _Loader(text)
        if (root := loader.get_single_node()) is not None:
            visit(root, ())
            document.value = loader.construct_document(root)
    # PyYAML raises the others for values that do not fit their tag, as `!!bool maybe`, or are too large or too deep.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, OverflowError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        what = " ".join(filter(None, (getattr(error, key, None) for key in ("context", "problem")))) or str(error)
        todo = "check indentation, quotes and brackets around this line"
        refuse((), mark.line + 1 if mark else 1, what, "YAML of plain values, indented by spaces", todo)
    return document


def _substitute(found: re.Match[str], environment: Mapping[str, str], missing: list[str]) -> str:
    """Returns the value of a reference; appends the name of an unset variable to the list."""
    if found[0] == "$$":
        return "$"
    named = _VARIABLE.fullmatch(found[1]) if found[2] else None
    if named is None:
        missing.append(found[0])
        return ""
    # As in a shell, the default also replaces an empty variable.
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
        # Faster than a dump: there may be thousands of them.
        return _REPRESENTER.represent_data(value).value
    # In a flow list the dumper quotes everything that could be taken for structure. Unprintable characters need the
    # escapes of double quotes: line breaks, lone surrogates, terminal escapes.
    plain = not isinstance(value, str) or value.isprintable()
    style = None if plain else '"'
    text = yaml.dump(
        [value], Dumper=_Dumper, default_flow_style=True, default_style=style, allow_unicode=plain, width=2**31 - 1
    )
    # Escape `$`, so that it reads back as the same text with an environment.
    return re.sub(r"\$(?=[${])", "$$", text.strip()[1:-1])


def render(values: Mapping[str, Any], origins: Mapping[str, str] | None = None) -> str:
    """Writes values as block YAML, one per line, that loads to the same; origins, by path, become aligned comments."""
    lines = list(_lines(values, 0, ()))
    if origins is None:
        return "".join(f"{text}\n" for text, _ in lines)
    comments = [one_line(origins.get(path, "")) if path else "" for _, path in lines]
    widths = [len(text) for (text, _), comment in zip(lines, comments) if comment and len(text) <= _MAX_COLUMN]
    column = max(widths, default=0)
    rows = (f"{text:{column}}  # {comment}" if comment else text for (text, _), comment in zip(lines, comments))
    return "".join(f"{row}\n" for row in rows)


def leaves(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields (path, value) of every value except non-empty sections."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def texts(values: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yields (path, text) of every text, also in lists."""
    if isinstance(values, str):
        yield path, values
    elif isinstance(values, (Mapping, list, tuple)):
        for key, value in values.items() if isinstance(values, Mapping) else enumerate(values):
            yield from texts(value, (*path, str(key)))


def _lines(values: Mapping[str, Any], depth: int, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yields (line, dotted path of its value; empty for a section's line)."""
    for key, value in values.items():
        head = "  " * depth + inline(key) + ":"
        if isinstance(value, Mapping) and value:
            yield head, ""
            yield from _lines(value, depth + 1, (*path, key))
        else:
            yield f"{head} {inline(value)}", ".".join((*path, key))
