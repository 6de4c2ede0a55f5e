"""The Tuner component, with the section `tune` of a declaration as an argument."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional, Union

from tfx import types
from tfx.components.util import udf_utils
from tfx.dsl.components.base import base_component, executor_spec
from tfx.proto import trainer_pb2
from tfx.types import standard_artifacts, standard_component_specs
from tfx.utils import json_utils

from tfx_estimator.components.execution import UnkeyedDriver
from tfx_estimator.components.in_python import TUNER, Argument, read_section
from tfx_estimator.components.trainer.arguments import (
    check_lengths,
    check_settings,
    find_contract,
    read_arguments,
)
from tfx_estimator.components.trainer.settings import OPERATION_KEY, RUN_FN, Settings
from tfx_estimator.components.tuner.executor import TUNE_OPERATION_KEY, Executor, to_properties
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.put_values import SECTION
from tfx_estimator.pipeline.config.rules.rule import Case, broken
from tfx_estimator.pipeline.config.rules.tune import TUNE_SECTION
from tfx_estimator.pipeline.config.tune import TuneSection, expand_ranges
from tfx_estimator.pipeline.config.warm_start import WarmStart

_ARGUMENT = Argument(
    ("tune",), TUNER, '{"max_trials": 10, "ranges": {"learning_rate": {"min": 1e-4, "max": 0.1, "sampling": "log"}}}'
)


class Driver(UnkeyedDriver):
    """Keeps timeouts, restarts and logging out of the cache key."""

    UNKEYED = (OPERATION_KEY, TUNE_OPERATION_KEY)


class Tuner(base_component.BaseComponent):
    """Tunes hyperparameters in complete, supervised trainings: TFX's Tuner without a `tuner_fn`.

    Each trial runs as in the Trainer: in new processes under the declared strategy, with a log, a training folder and
    restarts of its own. keras-tuner's oracles choose the values. A tuning that was killed resumes: completed trials are
    not repeated, and an interrupted one resumes from its checkpoint.

        tuner = Tuner(
            module_file="taxi_utils.py",
            examples=example_gen.outputs["examples"],
            schema=schema_gen.outputs["schema"],
            transform_graph=transform.outputs["transform_graph"],
            train_args=trainer_pb2.TrainArgs(num_steps=1_000),
            eval_args=trainer_pb2.EvalArgs(num_steps=500),
            tune={
                "objective": {"metric": "accuracy", "mode": "max"},
                "max_trials": 10,
                "ranges": {"learning_rate": {"min": 1e-4, "max": 0.1, "sampling": "log"}, "units": [16, 64]},
            },
        )
        trainer = Trainer(..., hyperparameters=tuner.outputs["best_hyperparameters"])

    As in the Trainer, the trainer_fn reads the values from `fn_args.hyperparameters["values"]`.

    Component `outputs`: `best_hyperparameters`, in keras-tuner's format; `tuner_results`: `trials.json`, with the full
    results of each trial, and TFX's own `tuner_results.json`.

    Args:
        examples: Channel of `standard_artifacts.Examples`.
        tune: The section `tune` of a declaration.
        transform_graph: Channel of `standard_artifacts.TransformGraph`.
        schema: Channel of `standard_artifacts.Schema`.
        base_model: Channel of the `standard_artifacts.Model` to start from.
        module_file: Path of a TFX module file with a trainer_fn. Exactly one of this and the next two is required.
        run_fn: Dotted path of the function that trains a declaration on the Keras paths.
        trainer_fn: Dotted path of a `trainer_fn(fn_args, schema)`.
        train_args: Splits and steps of a trial.
        eval_args: Splits and steps of its evaluation.
        custom_config: `fn_args.custom_config`.
        distribution: The Trainer's, for each trial; likewise the next five.
        warm_start: The section `trainer.warm_start` of a declaration: the initial weights of each trial.
        tf1: The entry `trainer.tf1`.
        threads: The section `trainer.threads` of a declaration.
        gpu: The section `trainer.gpu`.
        onednn: The option `trainer.onednn`.
        settings: The Trainer's settings: timeouts.

    Raises:
        DeclarationError: An argument is wrong; or it is a run_fn, which reports no metrics.

    Source: https://www.tensorflow.org/tfx/guide/tuner.
    """

    DRIVER_CLASS = Driver
    SPEC_CLASS = standard_component_specs.TunerSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        examples: types.BaseChannel,
        tune: Union[Mapping[str, Any], TuneSection],
        transform_graph: Optional[types.BaseChannel] = None,
        schema: Optional[types.BaseChannel] = None,
        base_model: Optional[types.BaseChannel] = None,
        module_file: Optional[str] = None,
        run_fn: Optional[str] = None,
        trainer_fn: Optional[str] = None,
        train_args: Optional[trainer_pb2.TrainArgs] = None,
        eval_args: Optional[trainer_pb2.EvalArgs] = None,
        custom_config: Optional[dict[str, Any]] = None,
        *,
        distribution: Optional[Union[Mapping[str, Any], Distribution]] = None,
        warm_start: Optional[Union[Mapping[str, Any], WarmStart]] = None,
        tf1: bool = False,
        threads: Optional[Mapping[str, Any]] = None,
        gpu: Optional[Mapping[str, Any]] = None,
        onednn: Optional[bool] = None,
        settings: Optional[Settings] = None,
    ) -> None:
        settings = check_settings(settings, TUNER)
        check_lengths(train_args, eval_args, TUNER)
        if [bool(module_file), bool(run_fn), bool(trainer_fn)].count(True) != 1:
            raise DeclarationError(
                "Tuner is given none, or several, of module_file, run_fn and trainer_fn",
                expected="the same as in the Trainer",
                todo="pass the one that the Trainer has",
            )
        contract = find_contract(module_file, run_fn, trainer_fn, component=TUNER)
        runtime = {"threads": threads, "gpu": gpu, "onednn": onednn}
        given = {"distribution": distribution, "warm_start": warm_start, "tf1": tf1 or None, **runtime}
        settings = read_arguments(contract, settings, given, TUNER)
        section = read_tune(tune)
        if settings.declaration is None:
            refuse_declared(section)
        if settings.path == RUN_FN:
            raise DeclarationError(
                "Tuner is given a run_fn, which runs its own evaluation, and reports no metrics",
                expected="a trainer_fn",
                todo="use tfx.components.Tuner with a tuner_fn: the Trainer takes its best_hyperparameters as well",
            )
        super().__init__(
            standard_component_specs.TunerSpec(
                examples=examples,
                schema=schema,
                transform_graph=transform_graph,
                base_model=base_model,
                module_file=module_file,
                train_args=train_args or trainer_pb2.TrainArgs(),
                eval_args=eval_args or trainer_pb2.EvalArgs(),
                custom_config=json_utils.dumps(custom_config),
                best_hyperparameters=types.Channel(type=standard_artifacts.HyperParameters),
                tuner_results=types.Channel(type=standard_artifacts.TunerResults),
            )
        )
        functions = {"run_fn": run_fn, "trainer_fn": trainer_fn}
        self.spec.exec_properties.update({name: dotted for name, dotted in functions.items() if dotted})
        self.spec.exec_properties.update({**settings.to_properties(), **to_properties(section)})
        if udf_utils.should_package_user_modules():
            udf_utils.add_user_module_dependency(
                self, standard_component_specs.MODULE_FILE_KEY, standard_component_specs.MODULE_PATH_KEY
            )


def read_tune(given: Union[Mapping[str, Any], TuneSection]) -> TuneSection:
    """Parses and checks a Tuner's `tune`, a dict or a section; the error lists all problems."""

    def longer(values: dict[str, Any]) -> dict[str, Any]:
        return {**values, "ranges": expand_ranges(values["ranges"])} if "ranges" in values else values

    section = read_section(given, TuneSection, ("tune",), _ARGUMENT, longer)
    if problems := list(broken(TUNE_SECTION, Case(Declaration.construct(tune=section)))):
        raise _ARGUMENT.refusal(problems)
    return section


def refuse_declared(section: TuneSection) -> None:
    """Refuses ranges of a declaration's options, as there is no declaration."""
    for name in section.ranges:
        if name.startswith(f"{SECTION}."):
            raise DeclarationError(
                f"{_ARGUMENT.call} varies {name}, but there is no declaration with that option",
                expected="a name that your trainer_fn reads from fn_args.hyperparameters['values']",
                todo="give it another name, and read it there",
            )
