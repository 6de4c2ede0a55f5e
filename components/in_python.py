"""What a YAML file calls a thing, in the words of a pipeline that is written in Python: arguments, and errors."""

from __future__ import annotations

import dataclasses
import numbers
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tfx_estimator.pipeline.base.errors import DeclarationError, TfxEstimatorError
from tfx_estimator.pipeline.config.explain import explain
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.section import Section, ValuesError

# Neither table decides a model: they are in no key. The first is for what an argument holds, when a component is made:
# the error names the component and the argument, so that a path begins within it. The second is for an error of a
# training that goes on, where nothing else says which argument is meant: it gives the whole call.
_IN_AN_ARGUMENT = (
    (r"\btrainer\.distribution\.?", ""),
    (r"\btrainer\.(?=(threads|gpu|onednn|profile|warm_start|start_timeout|stall_timeout)\b)", ""),
    (
        r"\btrainer\.(?=(precision|xla|gradient_accumulation|parallel_parts|sync_every|model_parallel|pipeline_parallel)\b)",
        "",
    ),
    (r"\b(?<=or )trainer\.model with a function\b", "a declaration, whose trainer.model is a function"),
    (r"add `(\w+):`( under `[\w.]+:`)?, or --set \S+=VALUE", r'add "\1"'),
    (r"--set \S+\.(\w+)=null", r'"\1"'),
    (r"remove the line", "leave it out"),
    (r"write its keys below it, indented; or as \{key: value\}", "give a dict"),
    (r"put it in quotes, as YAML reads it as something else", "give a str"),
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
)

Typed = TypeVar("Typed", bound=Section)
TRAINER, TUNER = "Trainer", "Tuner"


@dataclasses.dataclass(frozen=True)
class Argument:
    """What a component is given, for the errors that tell of it.

    Args:
        names: Its name, or several.
        component: Its class, as the user calls it.
        form: An example of what it takes.
        todo: About what is none.
        inside: What holds it, where it is a part of an argument: `settings=Settings`.
    """

    names: tuple[str, ...]
    component: str
    form: str = ""
    todo: str = "give a dict of numbers and words, as in a declaration"
    inside: str = ""

    @property
    def call(self) -> str:
        """The component with it, in Python."""
        given = ", ".join(f"{name}=…" for name in self.names)
        return f"{self.component}({f'{self.inside}({given})' if self.inside else given})"

    def not_plain(self, value: Any, path: str = "") -> DeclarationError:
        """Returns the error of a value that no YAML file could hold.

        Args:
            path: Where in the argument, dotted.
        """
        what = f"{self.call}{f': {path}' if path else ''} is {name_kind(value)}"
        return DeclarationError(what, expected=self.form, todo=self.todo)

    def twice(self) -> DeclarationError:
        """Returns the error of what the settings hold as well."""
        return DeclarationError(
            f"{self.call} is given settings that hold such values as well",
            expected="them in one place",
            todo="remove one of the two",
        )

    def refusal(self, problems: Sequence[Problem]) -> DeclarationError:
        """Returns the error that lists the problems.

        Args:
            problems: Written for a declaration.
        """
        count = f"{len(problems)} problems" if len(problems) > 1 else "1 problem"
        text = "\n\n".join(f"  {_in_python(problem)}".replace("\n", "\n  ") for problem in problems)
        return DeclarationError(f"{self.call} has {count}\n\n{text}")


def plain(value: Any, argument: Argument, path: str = "") -> Any:
    """Returns what was given as YAML would have it.

    Args:
        value: Of the caller; sections of this project and NumPy's numbers too.
        argument: That it is, or a part of.
        path: Where in the argument it stands, dotted.

    Raises:
        DeclarationError: There is something in it that YAML cannot say.
    """
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
    """Types a section that was given as an argument.

    Args:
        given: As in YAML, or typed.

    Raises:
        DeclarationError: Something is wrong; the message lists everything that is.
    """
    if isinstance(given, kind):
        return given
    if not isinstance(given, Mapping):
        raise argument.not_plain(given)
    return parse(longer(plain(given, argument)), kind, path, argument)


def parse(values: dict[str, Any], kind: type[Typed], path: Sequence[str], argument: Argument) -> Typed:
    """Types the values of a section.

    Args:
        values: As of `plain`.

    Raises:
        DeclarationError: Something is wrong; the message lists everything that is.
    """
    try:
        return kind.parse_obj(values)
    except ValuesError as error:
        whole = values
        for key in reversed(path):
            whole = {key: whole}
        found = (each._replace(path=(*path, *each.path)) for each in error.found)
        raise argument.refusal([explain(each, whole, lambda path: "") for each in found]) from None


def name_kind(value: Any) -> str:
    """Says what was given in place of a section."""
    kind = type(value)
    return repr(value) if isinstance(value, str) else f"an object, {kind.__module__}.{kind.__name__}"


def reword(error: TfxEstimatorError, component: str = TRAINER) -> None:
    """Tells a caller of `Trainer(…)`, or of `Tuner(…)`, which of its arguments an error of a training is about.

    Args:
        error: Written for a declaration; its texts are changed.
    """
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
