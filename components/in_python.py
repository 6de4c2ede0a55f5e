"""Sections of a declaration as arguments of components in Python, with errors in Python's terms."""

from __future__ import annotations

import dataclasses
import json
import numbers
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message

from tfx_estimator.pipeline.base.errors import DeclarationError, TfxEstimatorError
from tfx_estimator.pipeline.config.explain import explain
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.section import Section, ValuesError

# Patterns in messages, and their replacements; they are in no cache key. The first table is for the content of an
# argument, when a component is made: the error names the component and the argument, so a path starts inside it. The
# second is for an error of a running training: it names the whole call.
_IN_AN_ARGUMENT = (
    (r"\btrainer\.distribution\.?", ""),
    (r"\btrainer\.(?=(tf1|threads|gpu|onednn|profile|warm_start|start_timeout|stall_timeout)\b)", ""),
    (r"add `(\w+):`( under `[\w.]+:`)?, or --set \S+=VALUE", r'add "\1"'),
    (r"--set \S+\.(\w+)=null", r'"\1"'),
    (r"remove the line", "leave it out"),
    (r"write its keys below it, indented; or as \{key: value\}", "give a dict"),
    (r"put it in quotes: YAML reads it as another type", "give a str"),
    (r"write it without quotes, in digits", "give a number"),
    (r"\btrue\b", "True"),
    (r"\bfalse\b", "False"),
    (r"\bnull\b", "None"),
    (r"\bthe declaration's folder\b", "the current folder"),
    (r"\btrainer\.model, or a trainer_fn\b", "a trainer_fn"),
    (r"\ba mapping\b", "a dict"),
    (r"\bsection\b", "dict"),
    (r"\btext is no\b", "a str is no"),
    (r"\bno text\b", "no str"),
)
_AS_A_CALL = (
    (r"\btrainer\.(start_timeout|stall_timeout)\b", r"{component}(settings=Settings(\1=…))"),
    (r"\btrainer\.distribution\.(train|eval)\.(\w+)", r"{component}(distribution={'\1': {'\2': …}})"),
    (r"\btrainer\.distribution\.(\w+)", r"{component}(distribution={'\1': …})"),
    (r"\btrainer\.distribution\b", "{component}(distribution=…)"),
    # What else it says is of a declaration.
    (r"\btrainer\.tf1: true.*", "{component}(tf1=True)"),
)

Typed = TypeVar("Typed", bound=Section)
Kind = TypeVar("Kind", bound=Message)
TRAINER, TUNER = "Trainer", "Tuner"


@dataclasses.dataclass(frozen=True)
class Argument:
    """An argument of a component, for errors about it.

    Args:
        names: Its name, or several names.
        component: The component's class name.
        form: An example of a valid value.
        todo: How to correct an invalid value.
        inside: The argument that it is a part of: `settings=Settings`.
    """

    names: tuple[str, ...]
    component: str
    form: str = ""
    todo: str = "give a dict of numbers and words, as in a declaration"
    inside: str = ""

    @property
    def call(self) -> str:
        """The component's call with this argument, in Python."""
        given = ", ".join(f"{name}=…" for name in self.names)
        return f"{self.component}({f'{self.inside}({given})' if self.inside else given})"

    def not_plain(self, value: Any, path: str = "") -> DeclarationError:
        """Returns the error of a value that YAML cannot represent."""
        what = f"{self.call}{f': {path}' if path else ''} is {name_kind(value)}"
        return DeclarationError(what, expected=self.form, todo=self.todo)

    def twice(self) -> DeclarationError:
        """Returns the error of values that the settings hold as well."""
        return DeclarationError(
            f"{self.call}: the settings hold such values as well",
            expected="the values in one place",
            todo="remove one of the two",
        )

    def refusal(self, problems: Sequence[Problem]) -> DeclarationError:
        """Returns the error that lists the problems."""
        count = f"{len(problems)} problems" if len(problems) > 1 else "1 problem"
        text = "\n\n".join(f"  {_in_python(problem)}".replace("\n", "\n  ") for problem in problems)
        return DeclarationError(f"{self.call} has {count}\n\n{text}")


def plain(value: Any, argument: Argument, path: str = "") -> Any:
    """Converts a value to YAML's types: sections of this project, mappings, sequences, and NumPy's numbers."""
    if isinstance(value, Section):
        return value.dict()
    if isinstance(value, Mapping):
        return {str(key): plain(item, argument, f"{path}.{key}".lstrip(".")) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, argument, path) for item in value]
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, numbers.Real):  # NumPy's
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    raise argument.not_plain(value, path)


def read_section(
    given: Any,
    kind: type[Typed],
    path: Sequence[str],
    argument: Argument,
    longer: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> Typed:
    """Parses a section that was given as an argument."""
    if isinstance(given, kind):
        return given
    if not isinstance(given, Mapping):
        raise argument.not_plain(given)
    return parse(longer(plain(given, argument)), kind, path, argument)


def parse(values: dict[str, Any], kind: type[Typed], path: Sequence[str], argument: Argument) -> Typed:
    """Parses the values of a section."""
    try:
        return kind.parse_obj(values)
    except ValuesError as error:
        whole = values
        for key in reversed(path):
            whole = {key: whole}
        found = (each._replace(path=(*path, *each.path)) for each in error.found)
        raise argument.refusal([explain(each, whole, lambda path: "") for each in found]) from None


def read_message(given: Any, kind: type[Kind], argument: Argument) -> Optional[Kind]:
    """Reads a TFX parameter that is a protocol buffer: a message, a dict of its fields, or JSON.

    TFX ignores unknown fields of a dict, and reports other text as a JSON error.

    Returns:
        The message; None if none is given, or if a value is known only at run time.
    """
    if given is None or _is_late(given):
        return None
    if isinstance(given, kind):
        return given
    values = _of_json(given) if isinstance(given, str) else given
    if not isinstance(values, Mapping):
        raise argument.not_plain(given)
    try:
        return json_format.ParseDict(dict(values), kind())
    except json_format.ParseError as error:
        what = f"{argument.call}: {' '.join(str(error).split())}"
        raise DeclarationError(what, expected=argument.form, todo=argument.todo) from None


def _of_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _is_late(given: Any) -> bool:
    """Returns True if a value in it is known only at run time."""
    # Imported here: training tasks import this module without TFX.
    from tfx.dsl.placeholder.placeholder import Placeholder
    from tfx.orchestration.data_types import RuntimeParameter

    if isinstance(given, Mapping):
        return any(map(_is_late, given.values()))
    if isinstance(given, (list, tuple)):
        return any(map(_is_late, given))
    return isinstance(given, (RuntimeParameter, Placeholder))


def name_kind(value: Any) -> str:
    """Describes a value that was given in place of a section."""
    kind = type(value)
    return repr(value) if isinstance(value, str) else f"an object, {kind.__module__}.{kind.__name__}"


def reword(error: TfxEstimatorError, component: str = TRAINER) -> None:
    """Rewrites a training's error in terms of the arguments of `Trainer(…)` or `Tuner(…)`."""
    for pattern, call in _AS_A_CALL:
        words = call.replace("{component}", component)
        error.what, error.expected, error.todo = (
            re.sub(pattern, words, text) for text in (error.what, error.expected, error.todo)
        )


def _in_python(problem: Problem) -> Problem:
    fields = {name: getattr(problem, name) for name in ("path", "what", "expected", "todo", "value")}
    for pattern, word in _IN_AN_ARGUMENT:
        fields = {name: re.sub(pattern, word, text) for name, text in fields.items()}
    return dataclasses.replace(problem, **fields)
