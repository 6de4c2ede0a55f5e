"""The strategies that can be compared, by name and count; imports no TensorFlow."""

from __future__ import annotations

import contextlib
import json
import os
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tfx_estimator.pipeline.base.cpus import available_cpus
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import Declaration, Loaded, load
from tfx_estimator.pipeline.config.checks import check
from tfx_estimator.pipeline.config.class_weights import BALANCED
from tfx_estimator.pipeline.config.problems import nearest
from tfx_estimator.pipeline.config.strategies import TRAITS
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.config.vary import Variation, check_not_set, parse_variations, reworded
from tfx_estimator.pipeline.user_source.trainer_functions import RUN_FN, functions_of

ONE_CORE, ONE_DEVICE = "one_core", "one_device"
DEVICES = CPU, GPU = "cpu", "gpu"
# Strategies with several devices in one process, or with several processes, take a count.
_COUNTED = tuple(name for name, traits in TRAITS.items() if traits.on_devices or traits.is_cluster)
NAMES = (ONE_CORE, ONE_DEVICE, *_COUNTED)
ALL = "all"
_DEFAULT_COUNT = 2
_MAX_COUNT = 64
# More steps than any measurement has: a checkpoint would disturb it.
_NEVER = 10**9
_OPTION = "--strategies"
# Entries that do not change the steps that are measured.
_NOT_MEASURED = ("eval_steps", "eval_batch_size", "keep_checkpoint_max", "start_timeout", "stall_timeout")
_AS_DECLARED = Variation()
_PATHS: tuple[str, ...] = typing.get_args(TrainerSection.__fields__["path"].outer_type_)


@dataclass(frozen=True)
class Contender:
    """One strategy that is measured.

    Args:
        name: `one_core`, `one_device`, or a tf.distribute strategy of the declaration.
        count: Devices of `mirrored` and `central_storage`, workers of the others; 1 for the first two.
        path: Value of `trainer.path`; empty is the declared one.
        variation: Of what else is varied.
        device: What is counted, and trains: `cpu` or `gpu`.
    """

    name: str
    count: int = 1
    path: str = ""
    variation: Variation = _AS_DECLARED
    device: str = CPU

    def __str__(self) -> str:
        name = f"{self.name}:{self.count}" if self.name in _COUNTED else self.name
        return " ".join(filter(None, (self.path, name, str(self.variation))))

    def cores(self, available: Sequence[int]) -> tuple[int, ...]:
        """Chooses the logical CPUs that its tasks run on.

        Returns:
            One for `one_core`, all for `one_device` and for GPUs; else as many as devices or workers, as far as there
            are so many.
        """
        count = len(available) if self.name == ONE_DEVICE or self.device == GPU else self.count
        return tuple(sorted(available)[:count])

    @property
    def overrides(self) -> tuple[str, ...]:
        """What declares this strategy, and its path, in place of those of a file."""
        name = ONE_DEVICE if self.name == ONE_CORE else self.name
        train = {"strategy": name, **self._sizes}
        declared = f"trainer.distribution.train={json.dumps(train)}"
        return (declared, f"trainer.path={self.path}") if self.path else (declared,)

    @property
    def _sizes(self) -> dict[str, Any]:
        """The entries of `distribution.train` that say how many devices or workers there are."""
        name = ONE_DEVICE if self.name == ONE_CORE else self.name
        if self.device == GPU:
            is_cluster = TRAITS[name].is_cluster
            return {"devices": {GPU: 1}, "workers": self.count} if is_cluster else {"devices": {GPU: self.count}}
        if name not in _COUNTED:
            return {}
        return {"workers": self.count} if TRAITS[name].is_cluster else {"devices": {CPU: self.count}}

    def declare(self, declaration: Declaration, steps: int) -> Declaration:
        """Changes a declaration to this strategy.

        Returns:
            Another one: of the strategy's options it keeps those that were declared for it, it writes no checkpoint in
            between, it has no evaluator, nothing ends it early, and it restarts nothing, since that would be measured
            too.
        """
        values = declaration.dict()
        trainer = values["trainer"]
        distribution = trainer["distribution"]
        name = ONE_DEVICE if self.name == ONE_CORE else self.name
        traits = TRAITS[name]
        train = distribution["train"] if distribution["train"]["strategy"] == name else {}
        train = {**train, "strategy": name, "devices": {}, **self._sizes}
        if traits.asynchronous:
            train["ps"] = train.get("ps") or 1
        trainer["distribution"] = {
            **{key: distribution[key] for key in ("sharding", "network")},
            "train": train,
            "max_restarts": 0,
        }
        trainer.update(
            train_steps=steps,
            train_epochs=None,
            save_checkpoints_steps=_NEVER,
            keep_best=None,
            early_stopping=None,
            profile=None,
        )
        if traits.distributes:
            trainer.update(model_parallel=None, pipeline_parallel=None)
        if not (traits.is_cluster and traits.in_step):
            trainer["sync_every"] = None
        if trainer["class_weights"] == BALANCED:
            # No weights cost less by a multiplication.
            trainer["class_weights"] = None
        trainer["path"] = self.path or trainer["path"]
        return Declaration.parse_obj(values)


def default_contenders() -> tuple[Contender, ...]:
    """All strategies, two devices or workers each."""
    return tuple(Contender(name, _DEFAULT_COUNT if name in _COUNTED else 1) for name in NAMES)


def parse_contenders(text: str, paths: str = "", vary: Sequence[str] = (), device: str = CPU) -> tuple[Contender, ...]:
    """Reads `--strategies`, `--paths` and `--vary`.

    Args:
        text: Names with counts, `mirrored:2,multi_worker_mirrored:4`; `all` stands for all with a count of 2.
        paths: Values of `trainer.path`, each of which trains with each strategy; none is the declared one.
        vary: As of `parse_variations`: each combination trains with each strategy on each path.
        device: `cpu`, or `gpu`: a count is one of GPUs then, and `one_device`, on one GPU, is the base.

    Returns:
        The strategies, each once, the base first: all efficiencies refer to it.

    Raises:
        DeclarationError: A name or a count cannot be used.
    """
    base = ONE_CORE if device == CPU else ONE_DEVICE
    chosen = [Contender(base)]
    for part in map(str.strip, text.split(",")):
        chosen += default_contenders() if part == ALL else [_parse(part)]
    named = [_parse_path(part) for part in map(str.strip, paths.split(","))] if paths else [""]
    variations = parse_variations(vary)
    chosen = [replace(each, device=device) for each in chosen if device == CPU or each.name != ONE_CORE]
    found = (replace(each, path=path, variation=varied) for path in named for varied in variations for each in chosen)
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Choice:
    """What is measured, and what is not.

    Args:
        loaded: The declaration under each variation.
        contenders: Those that can be trained; the first is the base.
        refused: Why the others cannot, by their names.
    """

    loaded: Mapping[Variation, Loaded]
    contenders: tuple[Contender, ...]
    refused: Mapping[str, str]

    def inputs_like(self, variation: Variation) -> Variation:
        """Returns the first variation whose Trainer is given the same as that of another."""
        return next(each for each in self.loaded if self._given(each) == self._given(variation))

    def _given(self, variation: Variation) -> tuple[Any, ...]:
        declaration = self.loaded[variation].declaration
        return declaration.data, declaration.transform, declaration.trainer.module_file, declaration.beam


def choose(contenders: Sequence[Contender], source: str, overrides: Sequence[str]) -> Choice:
    """Loads the declaration under each variation, and checks it with every strategy.

    Args:
        contenders: As of `parse_contenders`.
        source: As of `load`.
        overrides: As of `load`.

    Returns:
        What can be measured, and why the rest cannot.

    Raises:
        DeclarationError: Where nothing is varied, one cannot be trained; else none can. Or a key is both set and
            varied.
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
    # A variation that every strategy refuses needs no inputs.
    used = {each.variation for each in chosen}
    loaded = {variation: each for variation, each in loaded.items() if variation in used}
    return Choice(loaded, tuple(chosen), {name: str(error) for name, error in refused.items()})


def _load(source: str, overrides: Sequence[str], variation: Variation, contenders: Sequence[Contender]) -> Loaded:
    """Loads the declaration under a variation; where its strategy or path has no such value, with one that has."""
    try:
        return load(source, [*overrides, *variation.overrides])
    except DeclarationError:
        for contender in contenders:
            with contextlib.suppress(DeclarationError):
                return load(source, [*overrides, *contender.overrides, *variation.overrides])
        raise


def check_contender(contender: Contender, loaded: Loaded) -> None:
    """Checks that the declaration can be trained with a strategy.

    Args:
        loaded: The user's declaration, under the contender's variation.

    Raises:
        DeclarationError: It cannot: the batch does not divide evenly, for example, or a run_fn trains by itself.
    """
    declaration = loaded.declaration
    file = declaration.trainer.module_file
    # A run_fn makes its own strategy and its own session: there is nothing to change, and nowhere to measure.
    if file and RUN_FN in (functions_of(file) or ()):
        raise DeclarationError(
            f"{loaded.source}: trainer.module_file: {file}: it defines run_fn, which makes a strategy of its own",
            expected="a Python file that defines trainer_fn, and no run_fn",
            todo="name trainer.model, or a module file with a trainer_fn",
        )
    if file and contender.path:
        raise DeclarationError(
            f"--paths: {loaded.source} names trainer.module_file, which brings its own way of training",
            expected="a declaration that names trainer.model",
            todo="leave --paths out",
        )
    for problem in check(contender.declare(declaration, declaration.trainer.train_steps or 1), loaded.search_paths):
        at = f"{problem.path}: " if problem.path else ""
        raise DeclarationError(
            f"{_OPTION} {contender}: {at}{problem.what}",
            expected=problem.expected,
            todo=f"{problem.todo}; or leave {contender} out",
        )


def available_cores() -> tuple[int, ...]:
    """The logical CPUs that this process may use: of a container with a quota, as many as that allows."""
    return tuple(sorted(os.sched_getaffinity(0))[: available_cpus()])


def _training(contender: Contender, declaration: Declaration) -> str:
    """What is measured of a contender: of two with the same there is nothing to compare."""
    declared = contender.declare(declaration, 1)
    values = {name: value for name, value in declared.trainer.dict().items() if name not in _NOT_MEASURED}
    parts = [contender.name, contender.count, declared.data.dict(), declared.transform.dict(), values]
    return json.dumps(parts, sort_keys=True, default=str)


def _same(contender: Contender, earlier: Contender) -> DeclarationError:
    """Says which values change nothing."""
    others = earlier.variation.values
    keys = [key for key, value in contender.variation.values.items() if others.get(key) != value]
    options = {"trainer.path": "--paths", "trainer.distribution": _OPTION}
    use = sorted({option for key in keys for start, option in options.items() if f"{key}.".startswith(f"{start}.")})
    return DeclarationError(
        f"trains the same as {earlier}: --vary {' and '.join(keys)} has no effect here",
        todo=f"use {' and '.join(use)}" if use else "",
    )


def _parse_path(part: str) -> str:
    if part in _PATHS:
        return part
    near = nearest(part, _PATHS)
    raise DeclarationError(
        f"--paths: there is no path {part!r}",
        expected=f"some of {', '.join(_PATHS)}",
        todo=f"did you mean `{near}`?" if near else "list them with commas in between",
    )


def _parse(part: str) -> Contender:
    name, colon, count = part.partition(":")
    if name not in NAMES:
        near = nearest(name, (*NAMES, ALL))
        raise DeclarationError(
            f"{_OPTION}: there is no strategy {name!r} to measure",
            expected=f"{ALL}, or some of {', '.join(map(str, default_contenders()))}",
            todo=f"did you mean `{near}`?" if near else "list them with commas in between",
        )
    if name not in _COUNTED:
        if colon:
            raise DeclarationError(
                f"{_OPTION} {part}: {name} takes no count",
                expected=f"{name}: one process" + (", on one core" if name == ONE_CORE else ", on all cores"),
                todo=f"write {name}, or for example mirrored:{count or _DEFAULT_COUNT}",
            )
        return Contender(name)
    if not colon:
        return Contender(name, _DEFAULT_COUNT)
    if not (re.fullmatch(r"[1-9][0-9]?", count) and int(count) <= _MAX_COUNT):
        raise DeclarationError(
            f"{_OPTION} {part}: {count!r} is no count of devices or workers",
            expected=f"a whole number from 1 to {_MAX_COUNT}",
            todo=f"write for example {name}:{_DEFAULT_COUNT}",
        )
    return Contender(name, int(count))
