"""A rule is a row: which key, when it is broken, and what a person is told. One engine reads all tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.rules.case import Case
from tfx_estimator.pipeline.config.section import Section
from tfx_estimator.pipeline.config.yaml_text import inline

When = Callable[[Case], Any]
STRATEGY, CODE = "trainer.distribution.train.strategy", ("trainer.module_file", "trainer.model")


def always(_: Case) -> bool:
    """A rule of this kind says itself when it is broken."""
    return True


@dataclass(frozen=True)
class Rule:
    """One thing that a declaration must not say.

    A `{name}` in a text, and in `path`, is filled in by `str.format`: from what `when` found, or from the case, as in
    `{train.strategy}`.

    Args:
        path: Dotted key that is wrong; the problem shows its value.
        when: Says whether the rule is broken: false; true; names for the texts, of which `value` is shown in place of
            the key's; or several of these, a problem each.
        todo: What to do next.
        expected: What is expected instead, where `todo` does not tell.
        depends: Further dotted keys that the problem follows from: where one is wrong itself, it is not shown.
    """

    path: str
    when: When
    what: str
    todo: str
    expected: str = ""
    depends: tuple[str, ...] = ()


def own_code(path: str, why: str, instead: str, when: When = always) -> Rule:
    """What is for the built-in step, beside code of the user's that does its own; `why` goes on from whose it is."""
    todo = f"remove it, and {instead}; or name a trainer.model that returns the network"
    return Rule(path, lambda case: when(case) and case.own, f"{{own}} {why}", todo, depends=CODE)


def conflict(path: str, other: str, when: When, why: str) -> Rule:
    """Two keys of which one must go; `other` may be a name of what `when` finds."""
    return Rule(path, when, why, f"remove one of them: {path} or {other}", depends=(other,))


def needs(path: str, key: str, value: str, when: When, why: str) -> Rule:
    """What has no effect, or cannot be, unless another key has such a value."""
    return Rule(path, when, why, f"remove it, or set {key} to {value}", depends=(key,))


def of_strategy(path: str, when: When, why: str, todo: str = "") -> Rule:
    """What the declared strategy of training cannot do."""
    return Rule(path, when, why, todo or "remove it, or choose another strategy", depends=(STRATEGY,))


def given(condition: When, *rules: Rule) -> tuple[Rule, ...]:
    """Rules that are asked under a condition alone."""

    def narrow(rule: Rule) -> Rule:
        return dataclasses.replace(rule, when=lambda case: condition(case) and rule.when(case))

    return tuple(map(narrow, rules))


def broken(rules: Iterable[Rule], case: Case) -> Iterator[Problem]:
    """Yields a problem for each time that a rule is broken."""
    for rule in rules:
        for found in _each(rule.when(case)):
            names = _Names(case, found)
            texts = (rule.path, rule.what, rule.expected, rule.todo)
            path, what, expected, todo = (text.format_map(names) for text in texts)
            depends = tuple(each.format_map(names) for each in rule.depends)
            value = found["value"] if "value" in found else written(case, path)
            yield Problem(path, what, expected, todo, value=value, depends=depends)


def written(case: Case, path: str) -> str:
    """The value of a key, as YAML has it; empty of a section."""
    value: Any = case
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, (list, tuple)) else getattr(value, key, None)
    if value is None or isinstance(value, (Section, Mapping)):
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return inline(list(value) if isinstance(value, tuple) else value)


def _each(found: Any) -> Iterator[Mapping[str, Any]]:
    if found and isinstance(found, Mapping):
        yield found
    elif isinstance(found, (Iterator, list, tuple)):
        for each in found:
            yield from _each(each)
    elif found:
        yield {"found": found}


class _Names(dict[str, Any]):
    """The names that a text may say."""

    def __init__(self, case: Case, found: Mapping[str, Any]) -> None:
        super().__init__(found)
        self._case = case

    def __missing__(self, name: str) -> Any:
        return getattr(self._case, name)
