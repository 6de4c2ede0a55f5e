"""A rule is a row of a table: a key, the condition that breaks it, and the message. One engine evaluates them all."""

from __future__ import annotations

import ast
import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

from tfx_estimator.pipeline.base.errors import DataError
from tfx_estimator.pipeline.base.files import PROOF, read_json
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.config.distribution import Distribution, Strategy, TrainStrategy
from tfx_estimator.pipeline.config.known import TABLE_NAMES, expand
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.section import Section
from tfx_estimator.pipeline.config.strategies import ON_DEVICES
from tfx_estimator.pipeline.config.table import is_here, read_declared, task_of_label
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.config.yaml_text import inline
from tfx_estimator.pipeline.platforms.registry import BY_NAME
from tfx_estimator.pipeline.user_data.read import read
from tfx_estimator.pipeline.user_data.reading import Reading
from tfx_estimator.pipeline.user_data.table import TableReading
from tfx_estimator.pipeline.user_source.functions import argument_names, find_arguments, is_model_fn
from tfx_estimator.pipeline.user_source.modules import find_module
from tfx_estimator.pipeline.user_source.trainer_functions import RUN_FN, find_estimator, functions_of

# One of these variables is set in an external cluster.
_CLUSTER_VARIABLES = ("TF_CONFIG", "SLURM_PROCID")
STRATEGY, CODE = "trainer.distribution.train.strategy", ("trainer.module_file", "trainer.model")


class Case:
    """A declaration, and facts derived from it on first use. Sections are attributes: `case.trainer`.

    The search paths are those of the user's modules; the target is empty if the pipeline runs on this machine.
    """

    def __init__(self, declaration: Declaration, search_paths: Sequence[str] = (), target: str = "") -> None:
        self.declaration = declaration
        self.search_paths = search_paths
        self.target, self.platform = target, BY_NAME[target]

    @classmethod
    def of_trainer(cls, trainer: TrainerSection) -> Case:
        """Returns the case of a trainer section alone."""
        return cls(Declaration.construct(trainer=trainer))

    @classmethod
    def of_distribution(cls, distribution: Distribution) -> Case:
        """Returns the case of a distribution alone, for a component in the user's own pipeline."""
        return cls.of_trainer(TrainerSection.construct(distribution=distribution))

    def of(self, update: Mapping[str, Any]) -> Case:
        """Returns the case of the declaration with other sections."""
        return Case(self.declaration.copy(update=update), self.search_paths, self.target)

    def __getattr__(self, section: str) -> Any:
        if section.startswith("_"):
            raise AttributeError(section)
        return getattr(self.declaration, section)

    @property
    def deploy(self) -> DeploySection:
        """The section `deploy`, or its defaults."""
        return self.declaration.deploy or DeploySection()

    @property
    def distribution(self) -> Any:
        """The section `trainer.distribution`."""
        return self.trainer.distribution

    @property
    def train(self) -> Any:
        """The section `trainer.distribution.train`."""
        return self.distribution.train

    @functools.cached_property
    def reading(self) -> Optional[Reading]:
        """What lies in the folder or table that `data` names; None if it names none of this machine."""
        return None if self.data.is_table else read(self.data.dataset, self.data.splits.names())

    @functools.cached_property
    def table(self) -> Union[TableReading, DataError, None]:
        """What lies in the table, or why it cannot be read; None without one on this machine."""
        if not self.data.is_table or not is_here(self.data, bool(self.target)):
            return None
        try:
            return read_declared(self.data)
        except DataError as error:
            return error

    @property
    def task(self) -> str:
        """What a table's label asks for; empty if only its rows, which are not here, would tell, or of images."""
        return task_of_label(self.data, self.table) if isinstance(self.table, TableReading) else self.data.task or ""

    @functools.cached_property
    def arguments(self) -> Optional[ast.arguments]:
        """The arguments of trainer.model's function; None if its text does not tell."""
        target = self.trainer.model
        if target in TABLE_NAMES["trainer.model"] and self.trainer.path != "estimator":
            # There `model_fn.table_networks` makes it.
            return None
        return find_arguments(expand("trainer.model", target), self.search_paths) if target else None

    @property
    def is_model_fn(self) -> bool:
        """True if trainer.model, as far as its text tells, is a whole model_fn, not a network function."""
        return self.arguments is not None and is_model_fn(argument_names(self.arguments))

    @functools.cached_property
    def kept(self) -> Mapping[str, Any]:
        """The proof of the kept training whose network.py trainer.model names; empty if it names none."""
        name = expand("trainer.model", self.trainer.model or "").partition(":")[0]
        module = find_module(name, self.search_paths) if name else None
        proof = read_json(module.file.with_name(PROOF)) if module is not None and module.file else None
        return proof if proof and "uncut" in proof else {}

    @property
    def user_code(self) -> str:
        """The user's code that replaces the built-in step, as the start of a sentence; empty if there is none."""
        if self.trainer.module_file is not None:
            return "a module file's trainer_fn or run_fn"
        return f"{self.trainer.model} is a whole Estimator model_fn: it" if self.is_model_fn else ""

    @functools.cached_property
    def functions(self) -> tuple[str, ...]:
        """The functions of the module file; first the one that TFX calls."""
        file = self.trainer.module_file
        return tuple(functions_of(file) or ()) if file else ()

    @property
    def is_run_fn(self) -> bool:
        """True if TFX calls the module file's run_fn."""
        return self.functions[:1] == (RUN_FN,)

    @functools.cached_property
    def run_fn_estimator(self) -> str:
        """The call by which the module file's run_fn trains an Estimator; empty if it does not, as far as known."""
        file = self.trainer.module_file
        return find_estimator(file, self.search_paths) if file and self.is_run_fn else ""

    @property
    def workers_unknown(self) -> bool:
        """True if an external cluster decides the number of workers later: see `Loaded.check_cluster`."""
        return self.train.takes("workers") and not self.train.workers and in_external_cluster()

    @property
    def batch(self) -> Optional[int]:
        """Examples of a batch per replica; None if unknown."""
        if self.workers_unknown or device_conflict(self.train):
            return None
        workers, devices = shares(self.train)
        return self.trainer.global_batch_size // (workers * devices)


def in_external_cluster() -> bool:
    """Returns whether this process is part of a cluster that it does not start, such as Slurm's."""
    return any(os.environ.get(name, "").strip() for name in _CLUSTER_VARIABLES)


def shares(section: Strategy) -> tuple[int, int]:
    """Returns the number of workers that share a batch, and of declared devices per worker."""
    # An asynchronous worker takes a whole batch. The number of a TPU's cores is unknown here.
    workers = section.worker_count if isinstance(section, TrainStrategy) and section.synchronous else 1
    return workers, section.devices.count


def device_conflict(section: Strategy, path: str = "") -> Optional[dict[str, str]]:
    """Returns why a strategy cannot use its declared devices, and the fix, for a rule; None if it can."""
    devices, remove = section.devices, "remove the devices"
    if section.takes("tpu") and (devices.cpu or devices.gpu):
        return {"why": "the strategy tpu trains on the TPU's own cores", "fix": remove}
    if devices.cpu and devices.gpu:
        return {"why": "both cpu and gpu are given", "fix": f"remove one: --set {path}.devices.cpu=null"}
    if not section.distributes and devices.count > 1:
        why = f"the strategy {section.strategy} uses one device, not {devices.count}"
        return {"why": why, "fix": f"{remove}, or set {path}.strategy to {ON_DEVICES}"}
    if section.is_cluster and devices.cpu and devices.indices != (0,):
        why = f"TensorFlow uses one CPU device in each process of {section.strategy}, and ignores the others"
        return {"why": why, "fix": f"{remove}, or write cpu: 1; for more replicas raise {path}.workers"}
    return None


When = Callable[[Case], Any]


@dataclass(frozen=True)
class Rule:
    """One condition that makes a declaration invalid.

    `str.format` fills in each `{name}` in `path` and the texts: from the result of `when`, or from the case, as in
    `{train.strategy}`.

    Args:
        path: Dotted key of the problem, which shows its value.
        when: Whether the rule is broken: a false or true value; names for the texts, where `value` replaces the key's;
            or an iterable of these, for several problems.
        expected: What is expected instead, if `todo` does not tell.
        depends: Further dotted keys on which the problem depends: if one is invalid itself, it is not shown.
    """

    path: str
    when: When
    what: str
    todo: str
    expected: str = ""
    depends: tuple[str, ...] = ()


def own_code(path: str, why: str, instead: str, when: When = lambda case: True) -> Rule:
    """Returns the rule of a key of the built-in step that the user's code replaces; `why` continues `user_code`."""
    todo = f"remove it, and {instead}; or name a trainer.model that returns the network"
    return Rule(path, lambda case: when(case) and case.user_code, f"{{user_code}} {why}", todo, depends=CODE)


def conflict(path: str, other: str, when: When, why: str) -> Rule:
    """Returns the rule of two keys that exclude each other; `other` may be a `{name}` from `when`."""
    return Rule(path, when, why, f"remove one of them: {path} or {other}", depends=(other,))


def needs(path: str, key: str, value: str, when: When, why: str) -> Rule:
    """Returns the rule of a key that needs a certain value of another key."""
    return Rule(path, when, why, f"remove it, or set {key} to {value}", depends=(key,))


def of_strategy(path: str, when: When, why: str, todo: str = "") -> Rule:
    """Returns the rule of a key that the training strategy does not support."""
    return Rule(path, when, why, todo or "remove it, or choose another strategy", depends=(STRATEGY,))


def given(condition: When, *rules: Rule) -> tuple[Rule, ...]:
    """Returns the rules, restricted to a condition."""

    def narrow(rule: Rule) -> Rule:
        return dataclasses.replace(rule, when=lambda case: condition(case) and rule.when(case))

    return tuple(map(narrow, rules))


def broken(rules: Iterable[Rule], case: Case) -> Iterator[Problem]:
    """Yields the problems of all broken rules."""
    for rule in rules:
        for found in _each(rule.when(case)):
            names = _Names(case, found)
            texts = (rule.path, rule.what, rule.expected, rule.todo)
            path, what, expected, todo = (text.format_map(names) for text in texts)
            depends = tuple(each.format_map(names) for each in rule.depends)
            value = found["value"] if "value" in found else written(case, path)
            yield Problem(path, what, expected, todo, value=value, depends=depends)


def written(case: Case, path: str) -> str:
    """Returns the value of a key as YAML; empty for a section."""
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
    def __init__(self, case: Case, found: Mapping[str, Any]) -> None:
        super().__init__(found)
        self._case = case

    def __missing__(self, name: str) -> Any:
        return getattr(self._case, name)
