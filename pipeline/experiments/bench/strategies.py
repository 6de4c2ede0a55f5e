"""Plan of a comparison of strategies: which ones, in which order; imports no TensorFlow."""

from __future__ import annotations

import contextlib
import json
import os
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tfx_estimator.pipeline.base.cpus import available_cpus
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import Declaration, Loaded, load
from tfx_estimator.pipeline.config.checks import check
from tfx_estimator.pipeline.config.class_weights import BALANCED
from tfx_estimator.pipeline.config.problems import nearest
from tfx_estimator.pipeline.config.put_values import Variation, check_not_set, parse_variations, reworded
from tfx_estimator.pipeline.config.rules.rule import Case
from tfx_estimator.pipeline.config.strategies import COUNTED, ONE_DEVICE, TRAITS
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.user_source.trainer_functions import RUN_FN, functions_of

FILES = JSON_FILE, PNG_FILE, HTML_FILE = "strategies.json", "strategies.png", "strategies.html"
ONE_CORE = "one_core"
CPU, GPU = "cpu", "gpu"
NAMES = (ONE_CORE, ONE_DEVICE, *COUNTED)
ALL = "all"
_DEFAULT_COUNT = 2
_MOST_COUNT = 64
_MOST_STEPS, _MOST_ROUNDS = 1_000_000, 1000
# More steps than any measurement has: training does not end before a late worker starts, and writes no checkpoint.
_NEVER = 10**9
_OPTION = "--strategies"
# Options of `trainer` that do not change the measured steps.
_NOT_MEASURED = ("eval_steps", "eval_batch_size", "keep_checkpoint_max", "start_timeout", "stall_timeout")
_AS_DECLARED = Variation()
_PATHS: tuple[str, ...] = typing.get_args(TrainerSection.__fields__["path"].kind)


@dataclass(frozen=True)
class Contender:
    """One strategy to measure."""

    name: str  # `one_core`, `one_device`, or a tf.distribute strategy of the declaration
    count: int = 1  # devices of `mirrored` and `central_storage`, workers of the others; 1 for the first two
    path: str = ""  # value of `trainer.path`; empty is the declared one
    variation: Variation = _AS_DECLARED
    device: str = CPU  # kind of the devices that train

    def __str__(self) -> str:
        name = f"{self.name}:{self.count}" if self.name in COUNTED else self.name
        return " ".join(filter(None, (self.path, name, str(self.variation))))

    def cores(self, available: Sequence[int]) -> tuple[int, ...]:
        """Returns its tasks' logical CPUs: all for `one_device` and GPUs; else one per device or worker."""
        count = len(available) if self.name == ONE_DEVICE or self.device == GPU else self.count
        return tuple(sorted(available)[:count])

    @property
    def _train(self) -> dict[str, Any]:
        """The value of `trainer.distribution.train`."""
        name = ONE_DEVICE if self.name == ONE_CORE else self.name
        devices = {"devices": {self.device: 1 if TRAITS[name].is_cluster else self.count}}
        sizes = {"workers": self.count} if TRAITS[name].is_cluster else devices
        return {"strategy": name, **(devices if self.device == GPU else {}), **(sizes if name in COUNTED else {})}

    @property
    def overrides(self) -> tuple[str, ...]:
        """The `--set` options for this strategy and its path."""
        declared = f"trainer.distribution.train={json.dumps(self._train)}"
        return (declared, f"trainer.path={self.path}") if self.path else (declared,)

    def declare(self, declaration: Declaration, steps: int = _NEVER) -> Declaration:
        """Returns this strategy's declaration, without checkpoints, early stopping, profiles and restarts.

        Options that were declared for this strategy are kept. Training continues until every task has measured,
        however late a worker starts.
        """
        values = declaration.dict()
        trainer = values["trainer"]
        distribution = trainer["distribution"]
        own = self._train
        traits = TRAITS[own["strategy"]]
        train = distribution["train"] if distribution["train"]["strategy"] == own["strategy"] else {}
        train = {**train, "devices": {}, **own}
        if traits.asynchronous:
            train["ps"] = train.get("ps") or 1
        kept = {key: distribution[key] for key in ("sharding", "network")}
        trainer["distribution"] = {**kept, "train": train, "max_restarts": 0}
        trainer.update(
            dict.fromkeys(("train_epochs", "keep_best", "early_stopping", "profile", "tensorboard")),
            train_steps=steps,
            save_checkpoints_steps=_NEVER,
            path=self.path or trainer["path"],
        )
        if traits.distributes:
            trainer.update(model_parallel=None, pipeline_parallel=None)
        if not (traits.is_cluster and traits.synchronous):
            trainer["sync_every"] = None
        if trainer["class_weights"] == BALANCED:
            # Without weights a step has one multiplication less, a negligible difference.
            trainer["class_weights"] = None
        return Declaration.parse_obj(values)


@dataclass(frozen=True)
class Run:
    """One training to measure."""

    contender: Contender
    round: int  # from 1
    constant_input: bool = False  # whether to train on one batch in memory

    def __str__(self) -> str:
        return f"{self.contender} (constant batch)" if self.constant_input else str(self.contender)


@dataclass(frozen=True)
class Plan:
    """Plan of a comparison."""

    contenders: tuple[Contender, ...]  # the first is the base
    steps: int  # measured steps
    warmup: int  # steps before those, after the first step of the task that starts last
    rounds: int  # measurements of each strategy
    input_share: bool  # whether to measure each once more on one batch in memory

    def check(self) -> None:
        """Raises DeclarationError for numbers that are out of range."""
        for option, value, most in (
            ("--steps", self.steps, _MOST_STEPS),
            ("--warmup", self.warmup, _MOST_STEPS),
            ("--rounds", self.rounds, _MOST_ROUNDS),
        ):
            if not 1 <= value <= most:
                raise DeclarationError(
                    f"{option} {value}: this is out of range",
                    expected=f"a number from 1 to {most:,}",
                    todo="choose enough steps for some seconds, and 3 rounds or more",
                )

    def runs(self) -> Iterator[Run]:
        """Yields the trainings in order: each round has all strategies, so that other load affects them alike.

        A training on a constant batch directly follows the one that it is compared with.
        """
        for number in range(1, self.rounds + 1):
            for contender in self.contenders:
                yield Run(contender, number)
                if self.input_share and number == 1:
                    yield Run(contender, number, constant_input=True)


def default_contenders() -> tuple[Contender, ...]:
    """Returns all strategies, with two devices or workers each."""
    return tuple(Contender(name, _DEFAULT_COUNT if name in COUNTED else 1) for name in NAMES)


def parse_contenders(text: str, paths: str = "", vary: Sequence[str] = (), device: str = CPU) -> tuple[Contender, ...]:
    """Reads `--strategies`, `--paths` and `--vary`: returns each strategy on each path under each combination, once.

    The first is the base of all efficiencies: `one_core`, or `one_device` with GPUs. Without `--paths` the declared
    one is used.
    """
    chosen = [Contender(ONE_CORE if device == CPU else ONE_DEVICE)]
    for part in map(str.strip, text.split(",")):
        chosen += default_contenders() if part == ALL else [_parse(part)]
    named = [part.strip() for part in paths.split(",")] if paths else [""]
    for path in filter(None, named):
        _check_known("--paths", path, _PATHS)
    variations = parse_variations(vary)
    chosen = [replace(each, device=device) for each in chosen if device == CPU or each.name != ONE_CORE]
    found = (replace(each, path=path, variation=varied) for path in named for varied in variations for each in chosen)
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Choice:
    """The strategies to measure, and those that cannot be trained."""

    loaded: Mapping[Variation, Loaded]
    contenders: tuple[Contender, ...]  # those that can be trained; the first is the base
    refused: Mapping[str, str]  # errors of the others, by name

    def inputs_like(self, variation: Variation) -> Variation:
        """Returns the first variation whose Trainer has the same inputs."""
        return next(each for each in self.loaded if self._given(each) == self._given(variation))

    def _given(self, variation: Variation) -> tuple[Any, ...]:
        declaration = self.loaded[variation].declaration
        return declaration.data, declaration.transform, declaration.trainer.module_file, declaration.beam


def choose(contenders: Sequence[Contender], source: str, overrides: Sequence[str]) -> Choice:
    """Loads the declaration under each variation, and checks it with every strategy.

    Raises:
        DeclarationError: Without variations, a strategy cannot be trained; with some, none can. Or a key is both set
            and varied.
    """
    loaded: dict[Variation, Loaded] = {}
    refused: dict[str, DeclarationError] = {}
    chosen = []
    for variation in dict.fromkeys(each.variation for each in contenders):
        measured = [each for each in contenders if each.variation == variation]
        check_not_set(overrides, variation)
        try:
            loaded[variation] = _load(source, overrides, variation, measured)
        except DeclarationError as error:
            refused[str(variation)] = reworded(error, variation)
    trained: dict[str, Contender] = {}
    for contender in contenders:
        if contender.variation not in loaded:
            continue
        try:
            check_contender(contender, loaded[contender.variation])
            earlier = trained.setdefault(_training(contender, loaded[contender.variation].declaration), contender)
            if earlier is not contender:
                raise _same(contender, earlier)
            chosen.append(contender)
        except DeclarationError as error:
            refused[str(contender)] = error
    varied = any(each.variation.overrides for each in contenders)
    if refused and not (varied and chosen):
        raise next(iter(refused.values()))
    # A variation without a valid strategy needs no inputs.
    used = {each.variation for each in chosen}
    loaded = {variation: each for variation, each in loaded.items() if variation in used}
    return Choice(loaded, tuple(chosen), {name: str(error) for name, error in refused.items()})


def _load(source: str, overrides: Sequence[str], variation: Variation, contenders: Sequence[Contender]) -> Loaded:
    """Loads the declaration under a variation, if needed with a contender's strategy and path that allow its value."""
    try:
        return load(source, [*overrides, *variation.overrides])
    except DeclarationError:
        for contender in contenders:
            with contextlib.suppress(DeclarationError):
                return load(source, [*overrides, *contender.overrides, *variation.overrides])
        raise


def check_contender(contender: Contender, loaded: Loaded) -> None:
    """Raises DeclarationError for a contender that cannot be trained, for example if the batch is not divisible."""
    declaration = loaded.declaration
    file = declaration.trainer.module_file
    # A run_fn makes its own strategy and session, so the strategy cannot be changed, nor its steps measured.
    if file and RUN_FN in (functions_of(file) or ()):
        raise DeclarationError(
            f"{loaded.source}: trainer.module_file: {file}: it defines run_fn, which makes its own strategy",
            expected="a Python file that defines trainer_fn, and no run_fn",
            todo="name trainer.model, or a module file with a trainer_fn",
        )
    if file and contender.path:
        raise DeclarationError(
            f"--paths: {loaded.source} names trainer.module_file, whose training code --paths cannot change",
            expected="a declaration that names trainer.model",
            todo="leave --paths out",
        )
    declared = contender.declare(declaration, declaration.trainer.train_steps or 1)
    for problem in check(Case(declared, loaded.search_paths)):
        at = f"{problem.path}: " if problem.path else ""
        raise DeclarationError(
            f"{_OPTION} {contender}: {at}{problem.what}",
            expected=problem.expected,
            todo=f"{problem.todo}; or leave {contender} out",
        )


def available_cores() -> tuple[int, ...]:
    """Returns the logical CPUs that this process may use, limited by a container's quota."""
    return tuple(sorted(os.sched_getaffinity(0))[: available_cpus()])


def _training(contender: Contender, declaration: Declaration) -> str:
    """Returns a key of a contender's training: two with the same key measure the same."""
    declared = contender.declare(declaration)
    values = {name: value for name, value in declared.trainer.dict().items() if name not in _NOT_MEASURED}
    parts = [contender.name, contender.count, declared.data.dict(), declared.transform.dict(), values]
    return json.dumps(parts, sort_keys=True, default=str)


def _same(contender: Contender, earlier: Contender) -> DeclarationError:
    """Returns an error that names the values without effect."""
    others = earlier.variation.values
    keys = [key for key, value in contender.variation.values.items() if others.get(key) != value]
    return DeclarationError(
        f"trains the same as {earlier}: --vary {' and '.join(keys)} has no effect here",
        todo=f"use {_OPTION} and --paths for options of a strategy or path",
    )


def _check_known(option: str, name: str, names: Sequence[str]) -> None:
    if name not in names:
        near = nearest(name, names)
        raise DeclarationError(
            f"{option}: there is no {name!r} to measure",
            expected=f"some of {', '.join(names)}",
            todo=f"did you mean `{near}`?" if near else "separate them by commas",
        )


def _parse(part: str) -> Contender:
    name, colon, count = part.partition(":")
    _check_known(_OPTION, name, (ALL, *NAMES))
    counted = name in COUNTED
    if colon and not (counted and re.fullmatch(r"[1-9][0-9]?", count) and int(count) <= _MOST_COUNT):
        raise DeclarationError(
            f"{_OPTION} {part}: {count!r} is not a number of devices or workers",
            expected=f"a whole number from 1 to {_MOST_COUNT}" if counted else f"{name}: one process, without a number",
            todo=f"write for example {name if counted else COUNTED[0]}:{_DEFAULT_COUNT}",
        )
    return Contender(name, int(count) if colon else _DEFAULT_COUNT if counted else 1)
