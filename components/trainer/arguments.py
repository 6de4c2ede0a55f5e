"""The arguments of a Trainer, or of a Tuner's trials, as the settings that they make."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Optional, Union

from absl import logging
from tfx.proto import trainer_pb2

from tfx_estimator.components.in_python import TRAINER, Argument, parse, plain, read_section
from tfx_estimator.components.messages import read_message
from tfx_estimator.components.trainer.contract import Contract
from tfx_estimator.components.trainer.distribution_argument import check_contract, read_distribution
from tfx_estimator.components.trainer.runtime_arguments import check_profiled, read_runtime
from tfx_estimator.components.trainer.settings import PATHS, Settings
from tfx_estimator.components.trainer.source import deciding_code
from tfx_estimator.components.trainer.warm_start_argument import check_begun, read_warm_start
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.kinds import reject
from tfx_estimator.pipeline.config.problems import Problem, nearest
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.config.warm_start import WarmStart
from tfx_estimator.pipeline.config.yaml_text import inline
from tfx_estimator.pipeline.user_source.fingerprint import fingerprint_source

# Fields of Settings that no section of a declaration has: their kinds, and what is expected.
_FILLED: dict[str, tuple[Any, str]] = {
    "image_shape": (tuple[int, int, int], "three whole numbers: height, width, channels"),
    "label_names": (tuple[str, ...], "the names of the classes, in the order of their labels"),
    "source": (str, "a fingerprint"),
    "declared": (tuple[str, ...], "dotted paths of a declaration"),
    "training_root": (str, "the path of a folder"),
    "path": (str, f"one of {', '.join(PATHS)}, or an empty str"),
}
_FORM = "Settings(start_timeout=300.0, stall_timeout=600.0), or a part of it"


def check_settings(settings: Optional[Settings], component: str = TRAINER) -> Settings:
    """Checks the settings that a component is given.

    Args:
        settings: As they are given; None takes the defaults.
        component: That is given them: TRAINER or TUNER.

    Returns:
        The same, of plain numbers and lists.

    Raises:
        DeclarationError: These are no Settings, or a field holds what no task could use.
    """
    if settings is None:
        return Settings()
    if not isinstance(settings, Settings):
        todo = "from tfx_estimator import Settings, and give its fields by their names: Settings(start_timeout=…)"
        raise Argument(("settings",), component, _FORM, todo).not_plain(settings)

    def field(name: str, form: str = "a dict, as the section of a declaration") -> Argument:
        return Argument((name,), component, form, "leave it out for the default", inside="settings=Settings")

    filled: dict[str, Any] = {}
    for name in ("start_timeout", "stall_timeout"):
        argument = field(name, "a number of seconds, at most 30 days")
        given = plain(getattr(settings, name), argument)
        parse({name: given}, TrainerSection, ("trainer",), argument)
        filled[name] = given
    for name, (kind, expected) in _FILLED.items():
        argument = field(name, expected)
        value = plain(getattr(settings, name), argument)
        if reason := reject(value, kind) or _reject_path(name, value):
            todo = "leave it out: create_pipeline fills it"
            raise argument.refusal([Problem(name, reason, expected, todo, value=inline(value))])
        filled[name] = tuple(value) if isinstance(value, list) else value
    if settings.declaration is not None:
        _check_declaration(settings.declaration, field("declaration"))
    if settings.distribution_section is not None:
        read_distribution(settings.distribution_section, component, field("distribution_section"))
    if settings.warm_start_section is not None:
        read_section(settings.warm_start_section, WarmStart, ("trainer", "warm_start"), field("warm_start_section"))
    if settings.runtime_section is not None:
        read_section(settings.runtime_section, TrainerSection, ("trainer",), field("runtime_section"))
    return dataclasses.replace(settings, **filled)


def _reject_path(name: str, value: Any) -> str:
    if name != "path" or value in ("", *PATHS):
        return ""
    near = nearest(value, PATHS)
    return f"there is no such way of training{f': did you mean `{near}`?' if near else ''}"


def _check_declaration(declaration: Any, argument: Argument) -> None:
    """Checks what of a declaration the component reads: its section `trainer`."""
    if not isinstance(declaration, Mapping) or "trainer" not in declaration:
        form = '{"trainer": {"model": "models.own:network", "train_steps": 600}}'
        todo = "leave it out, and let create_pipeline fill it of what load_declaration returns"
        raise dataclasses.replace(argument, form=form, todo=todo).not_plain(declaration)
    read_section(declaration["trainer"], TrainerSection, ("trainer",), argument)


def check_lengths(train_args: Any, eval_args: Any, component: str = TRAINER) -> None:
    """Refuses `train_args` and `eval_args` that TFX would take, and leave a part of out.

    Args:
        train_args: As they are given: a message, a dict, JSON, or what is known at run time only.

    Raises:
        DeclarationError: One of them is none.
    """
    for name, given, kind in (
        ("train_args", train_args, trainer_pb2.TrainArgs),
        ("eval_args", eval_args, trainer_pb2.EvalArgs),
    ):
        form = f"a trainer_pb2.{kind.__name__}, or a dict of its fields"
        todo = f"say {name}=trainer_pb2.{kind.__name__}(num_steps=…)"
        read_message(given, kind, Argument((name,), component, form, todo))


def read_arguments(
    contract: Contract,
    settings: Settings,
    distribution: Optional[Union[Mapping[str, Any], Distribution]],
    runtime: Mapping[str, Any],
    warm_start: Optional[Union[Mapping[str, Any], WarmStart]] = None,
    component: str = TRAINER,
) -> Settings:
    """Types and checks what a component was given beyond TFX's own parameters.

    Args:
        distribution: As the section `trainer.distribution`; None is none.
        runtime: `threads`, `gpu`, `onednn`, `profile`: None is the default.
        warm_start: As the section `trainer.warm_start`; None is none.
        component: The one that was given it: TRAINER or TUNER.

    Returns:
        The settings, with all of it, the path and the fingerprint of the source.

    Raises:
        DeclarationError: Something is wrong, or given twice, or the function cannot be given it.
    """
    if distribution is not None:
        settings = _with_distribution(settings, distribution, component)
    if section := read_runtime(dict(runtime), settings, component):
        settings = dataclasses.replace(settings, runtime_section=section)
    begins = ""
    if warm_start is not None:
        begun = read_warm_start(warm_start, settings, component)
        begins = f"-{begun.fingerprint()}"
        settings = dataclasses.replace(settings, warm_start_section=begun.dict())
    if settings.declaration is None:
        check_contract(settings.distribution, contract, component)
        check_profiled(settings, contract.path, component)
        check_begun(settings, contract.path, component)
    # Other weights in the same place make another model.
    source = (settings.source or _fingerprint(contract, component)) + begins
    return dataclasses.replace(settings, path=settings.path or contract.path, source=source)


def _with_distribution(
    settings: Settings, distribution: Union[Mapping[str, Any], Distribution], component: str
) -> Settings:
    if settings.declaration is not None or settings.distribution_section is not None:
        raise DeclarationError(
            f"{component} is given a distribution, and settings that hold one",
            expected="the distribution in one place",
            todo="remove one of the two",
        )
    section = read_distribution(distribution, component)
    # One that says nothing is none: the same training, and the same key.
    return settings if section == Distribution() else dataclasses.replace(settings, distribution_section=section.dict())


def _fingerprint(contract: Contract, component: str) -> str:
    """Of the user's code, and of our own that decides the model."""
    own = deciding_code(contract.path)
    if contract.target:
        try:
            return fingerprint_source([contract.target, *own])
        except DeclarationError as error:
            # TFX needs the module when it trains, perhaps elsewhere. A module file it keys by its contents.
            if not contract.target.endswith(".py"):
                logging.warning("The %s's cache key does not see its user code: %s.", component, error.what)
    return fingerprint_source(own)
