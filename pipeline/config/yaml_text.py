"""YAML as the declaration reads and writes it: safe, with the place of each value, and no surprises of YAML 1.1."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from tfx_estimator.pipeline.config.problems import Problem, shorten

Path = tuple[str, ...]

_TAG = "tag:yaml.org,2002:"
_MERGE = _TAG + "merge"
# A text has no more values than characters. More, in one that is not short, would be an attack by aliases of aliases.
_MAX_VALUES = 10_000
# Far below Python's own limit of recursion.
MAX_DEPTH = 50
# So say later libyamls, of what they did not read to its end.
_TOO_DEEP = "exceeded maximum nesting depth"
_MAX_DIGITS = 40
_INT = re.compile(r"^[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F]+)$")
# YAML 1.1, and so PyYAML, reads `1e-3` as text.
_FLOAT = re.compile(
    r"^[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+"
    r"|\.(?:inf|Inf|INF))$|^\.(?:nan|NaN|NAN)$"
)


class _Loader(yaml.CSafeLoader):
    """Reads no dates, no base 60 and no leading-zero octals: they would be surprises."""

    yaml_implicit_resolvers: dict[str, list] = {}
    _depth = 0

    def descend_resolver(self, parent: Any, index: Any) -> None:
        """Called for each node: that in C would crash where it is too deep."""
        self._depth += 1
        if self._depth > MAX_DEPTH + 1:
            raise RecursionError

    def ascend_resolver(self) -> None:
        """Called where a node ends."""
        self._depth -= 1


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
_MERGING = yaml.constructor.SafeConstructor()


@dataclass
class Document:
    """What one YAML text says.

    Args:
        value: Its value: mappings, lists and scalars.
        lines: The line of each key, by its path; the whole text's under `()`.
        problems: Everything that is wrong with it as YAML.
    """

    value: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def read_yaml(text: str, source: str) -> Document:
    """Reads one YAML document. Never raises on what the text holds.

    Returns:
        The document; where it has problems, as much of it as could be read.
    """
    reader = _Reader(source, max(len(text), _MAX_VALUES))
    if found := yaml.reader.Reader.NON_PRINTABLE.search(text):
        # YAML's line breaks are those of `splitlines`.
        line = len(f"{text[: found.start()]}|".splitlines())
        what = f"the character {found[0]!a} is not allowed"
        reader.refuse((), line, what, "YAML text", "remove the character, or escape it in quotes")
        return reader.document
    try:
        node = yaml.compose(text, Loader=_Loader)
        reader.document.value = None if node is None else reader.read(node, ())
    except (RecursionError, yaml.MarkedYAMLError) as error:
        if isinstance(error, RecursionError) or error.problem == _TOO_DEEP:
            what = "it is nested too deeply, or contains itself"
            reader.refuse((), 1, what, "a declaration", "see `tfx-estimator copy`")
            return reader.document
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        hint = _syntax_hint(error, text.splitlines()[line - 1 : line])
        reader.refuse((), line, " ".join(filter(None, [error.context, error.problem])), *hint)
    return reader.document


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
    return text.strip()[1:-1]


class _Reader:
    def __init__(self, source: str, most: int) -> None:
        self.source = source
        self.document = Document()
        self._left = most

    def refuse(self, path: Path, line: int, what: str, expected: str = "", todo: str = "", value: str = "") -> None:
        """Notes a problem."""
        where = f"{self.source}:{line}"
        self.document.problems.append(Problem(".".join(path), what, expected, todo, where=where, value=value))

    def read(self, node: yaml.Node, path: Path) -> Any:
        """Returns the value of a node, and notes its line."""
        line = node.start_mark.line + 1
        self.document.lines.setdefault(path, line)
        self._left -= 1
        if self._left < 0 or len(path) > MAX_DEPTH:
            raise RecursionError
        kind = node.tag.removeprefix(_TAG)
        if isinstance(node, yaml.MappingNode) and kind == "map":
            return dict(self._items(node, path))
        if isinstance(node, yaml.SequenceNode) and kind == "seq":
            return [self.read(item, (*path, str(index))) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode) and kind in ("null", "bool", "int", "float", "str"):
            return self._scalar(node, kind, path, line)
        tag = shorten(node.tag.replace(_TAG, "!!"))
        self.refuse(path, line, f"the YAML tag {tag!r}", "plain values", "remove the tag")
        return None

    def _items(self, node: yaml.MappingNode, path: Path) -> Iterator[tuple[str, Any]]:
        seen: dict[str, int] = {}
        for key_node, _ in node.value:
            key, line = key_node.value, key_node.start_mark.line + 1
            if not _is_text(key_node, _MERGE):
                key = shorten(str(key)) if isinstance(key_node, yaml.ScalarNode) else "a list or mapping"
                self.refuse(path, line, f"the key {key!r} is no text", "a name", f'put it in quotes: "{key}"')
            elif key in seen:
                what = f"this key stands in line {seen[key]} already"
                self.refuse((*path, key), line, what, "each key once", "keep one")
            else:
                seen[key] = line
        # What `<<` merges comes before own keys, of which the last word is. An alias is the same node, and holds each
        # key once from here on.
        _MERGING.flatten_mapping(node)
        node.value = list({each[0].value: each for each in node.value if _is_text(each[0])}.values())
        for key_node, value_node in node.value:
            key, inner = key_node.value, (*path, key_node.value)
            self.document.lines[inner] = key_node.start_mark.line + 1
            yield key, self.read(value_node, inner)

    def _scalar(self, node: yaml.ScalarNode, kind: str, path: Path, line: int) -> Any:
        text = node.value
        try:
            if kind == "null":
                return None
            if kind == "bool":
                return yaml.SafeLoader.bool_values[text.lower()]
            if kind == "int" and len(text) <= _MAX_DIGITS:
                return int(text.replace("_", ""), 16 if "x" in text else 10)
            if kind == "float":
                return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
            if kind == "str":
                return text
        except (ValueError, KeyError):  # an explicit tag such as `!!int x`
            pass
        self.refuse(path, line, f"this is no {kind} that can be read", "a plain value", "correct it", shorten(text))
        return None


def _is_text(node: yaml.Node, *others: str) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag in (_TAG + "str", *others)


def _syntax_hint(error: yaml.MarkedYAMLError, lines: list[str]) -> tuple[str, str]:
    """What was expected, and what to do; `lines` holds the one at which the error is."""
    problem = error.problem or ""
    if "tab character" in problem or any(line.lstrip(" ").startswith("\t") for line in lines):
        return "indentation by spaces", "replace the tab by spaces"
    if "mapping values are not allowed" in problem:
        return "one `key: value` a line", "put a text that contains `: ` in quotes, and check the indentation"
    if "single document" in (error.context or ""):
        return "one document in the file", "remove the second `---` and what follows"
    if "alias" in problem:
        return "an alias of an anchor above it", "define the anchor first, or put a text that starts with * in quotes"
    return "YAML", "check indentation, quotes and brackets around this line"
