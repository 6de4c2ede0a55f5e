"""What a Trainer is given that is of a declaration alone: refused in this project's words, with what to do instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tfx_estimator.components.in_python import TRAINER, Argument, parse, plain
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.rules.case import Case
from tfx_estimator.pipeline.config.rules.rule import broken
from tfx_estimator.pipeline.config.rules.step import STEP
from tfx_estimator.pipeline.config.trainer import TrainerSection

# What TFX's Trainer calls it.
_CALLED = {
    "model": "trainer_fn=… names the function that makes the Estimator, and module_file=… its file",
    "train_steps": "train_args=trainer_pb2.TrainArgs(num_steps=…)",
    "eval_steps": "eval_args=trainer_pb2.EvalArgs(num_steps=…)",
    "params": "custom_config=…, which your function finds in fn_args.custom_config",
    "start_timeout": "settings=Settings(start_timeout=…)",
    "stall_timeout": "settings=Settings(stall_timeout=…)",
}
_DECLARE = "a declaration, a YAML file whose trainer.model returns the network"


def refuse_entries(given: Mapping[str, Any], settings: Settings, component: str = TRAINER) -> None:
    """Refuses entries of a declaration's section `trainer` that the user's code decides by itself.

    Args:
        given: Arguments by name that the component has no parameters of; those that ask for nothing are taken.

    Raises:
        DeclarationError: There are such entries; the message lists each with the reason.
        TypeError: A name is none of a declaration either.
    """
    unknown = [name for name in given if name not in TrainerSection.__fields__]
    if unknown:
        raise TypeError(f"{component}.__init__() got an unexpected keyword argument '{unknown[0]}'")
    if not given:
        return
    argument = Argument(tuple(given), component)
    if settings.declaration is not None:
        raise argument.twice()
    values = {name: plain(value, _alone(name, component), name) for name, value in given.items()}
    # A file of the user's in its place: what holds of its code holds of any function that is named.
    own = {"module_file": "module.py", "train_steps": 1}
    section = parse({**own, **values}, TrainerSection, ("trainer",), argument)
    asked = {name for name in given if getattr(section, name) != TrainerSection.__fields__[name].get_default()}
    declaration = Declaration.construct(trainer=section)
    found = broken(STEP, Case(declaration))
    problems = [problem for problem in found if _name(problem) in asked]
    problems += _others(asked - set(map(_name, problems)))
    if problems:
        raise argument.refusal(problems)


def _name(problem: Problem) -> str:
    """The entry of the section `trainer` that a problem is of."""
    return problem.path.split(".")[1]


def _others(names: set[str]) -> Iterator[Problem]:
    for name in sorted(names):
        called = _CALLED.get(name)
        what = "the function that is called decides it by itself" if called is None else "TFX calls it otherwise"
        todo = called or f"do it in your own code, or train by {_DECLARE}"
        yield Problem(name, what, "no such argument", todo if called is None else f"say {called}")


def _alone(name: str, component: str) -> Argument:
    return Argument((name,), component, f"nothing: it is of {_DECLARE}", "do it in your own code")
