"""The Trainer component."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any, Optional, Union

from tfx import types
from tfx.components.trainer import component as tfx_trainer
from tfx.components.trainer import executor as tfx_executor
from tfx.dsl.components.base import executor_spec
from tfx.proto import trainer_pb2

from tfx_estimator.components.trainer.distribution_argument import read_distribution
from tfx_estimator.components.trainer.executor import Executor
from tfx_estimator.components.trainer.settings import SETTINGS_KEY, Settings
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.errors import DeclarationError
from tfx_estimator.pipeline.user_source.fingerprint import fingerprint_source


class Trainer(tfx_trainer.Trainer):
    """A drop-in for `tfx.components.Trainer` that trains in a supervised, fresh process.

    It takes a module file with `trainer_fn` (the legacy Estimator contract) or `run_fn`, or the dotted path of such a
    function, and adds: a process whose memory and devices are its own, a log file per task, deadlines, a training
    folder that a retry resumes from, and a model that is either whole or not there. With `distribution`, the Estimator
    of a trainer_fn trains under any declared strategy, unedited: each step's global batch is one batch of its input_fn,
    and a loss that the strategy would scale to another update is refused before training.

        trainer = Trainer(
            module_file="taxi_utils.py",
            examples=example_gen.outputs["examples"],
            schema=schema_gen.outputs["schema"],
            transform_graph=transform.outputs["transform_graph"],
            train_args=trainer_pb2.TrainArgs(num_steps=10_000),
            eval_args=trainer_pb2.EvalArgs(num_steps=5_000),
            distribution={"train": {"strategy": "multi_worker_mirrored", "workers": 2}, "evaluator": True},
        )

    Component `outputs`: `model`: the serving SavedModel, and the EvalSavedModel where there is one; `model_run`:
    checkpoints, TensorBoard events, logs of the tasks, the declaration.

    Args:
        examples: Channel of `standard_artifacts.Examples`.
        transformed_examples: Old name of `examples`.
        transform_graph: Channel of `standard_artifacts.TransformGraph`.
        schema: Channel of `standard_artifacts.Schema`.
        base_model: Channel of the `standard_artifacts.Model` to start from.
        hyperparameters: Channel of `standard_artifacts.HyperParameters`.
        module_file: Path of a TFX module file.
        run_fn: Dotted path of a `run_fn(fn_args)`.
        trainer_fn: Dotted path of a `trainer_fn(fn_args, schema)`.
        train_args: Splits and steps of training.
        eval_args: Splits and steps of evaluation.
        custom_config: Further entries of `fn_args.custom_config`.
        custom_executor_spec: TFX's executor of a trainer_fn or of a run_fn: this Trainer's own takes its place.
        distribution: The section `trainer.distribution` of a declaration: strategies, evaluator, restarts. None trains
            on one device.
        settings: Deadlines, and the declaration; None takes the defaults.

    Raises:
        DeclarationError: The distribution is wrong, or there are two of it; or the executor is another one.

    Source: https://www.tensorflow.org/tfx/guide/trainer.
    """

    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        examples: Optional[types.BaseChannel] = None,
        transformed_examples: Optional[types.BaseChannel] = None,
        transform_graph: Optional[types.BaseChannel] = None,
        schema: Optional[types.BaseChannel] = None,
        base_model: Optional[types.BaseChannel] = None,
        hyperparameters: Optional[types.BaseChannel] = None,
        module_file: Optional[str] = None,
        run_fn: Optional[str] = None,
        trainer_fn: Optional[str] = None,
        train_args: Optional[trainer_pb2.TrainArgs] = None,
        eval_args: Optional[trainer_pb2.EvalArgs] = None,
        custom_config: Optional[dict[str, Any]] = None,
        custom_executor_spec: Optional[executor_spec.ExecutorSpec] = None,
        *,
        distribution: Optional[Union[Mapping[str, Any], Distribution]] = None,
        settings: Optional[Settings] = None,
    ) -> None:
        _check_executor(custom_executor_spec)
        settings = settings or Settings()
        if distribution is not None:
            settings = _with_distribution(settings, distribution)
        dotted = trainer_fn or run_fn
        if not settings.source and isinstance(dotted, str):
            module, _, name = dotted.rpartition(".")
            settings = dataclasses.replace(settings, source=fingerprint_source(f"{module}:{name}", sys.path))
        super().__init__(
            examples=examples,
            transformed_examples=transformed_examples,
            transform_graph=transform_graph,
            schema=schema,
            base_model=base_model,
            hyperparameters=hyperparameters,
            module_file=module_file,
            run_fn=run_fn,
            trainer_fn=trainer_fn,
            train_args=train_args,
            eval_args=eval_args,
            custom_config={**(custom_config or {}), SETTINGS_KEY: settings.to_dict()},
        )


def _with_distribution(settings: Settings, distribution: Union[Mapping[str, Any], Distribution]) -> Settings:
    if settings.declaration is not None or settings.distribution_section is not None:
        raise DeclarationError(
            "Trainer is given a distribution, and settings that hold one",
            expected="the distribution in one place",
            todo="remove one of the two",
        )
    return dataclasses.replace(settings, distribution_section=read_distribution(distribution).dict())


def _check_executor(spec: Optional[executor_spec.ExecutorSpec]) -> None:
    """Pipelines with a trainer_fn name TFX's Executor, as its own default calls a run_fn."""
    if spec is None:
        return
    known = (tfx_executor.Executor, tfx_executor.GenericExecutor, Executor)
    named = getattr(spec, "executor_class", None)
    if named not in known:
        raise DeclarationError(
            f"custom_executor_spec names {getattr(named, '__name__', type(spec).__name__)}",
            expected="none: this Trainer's own executor supervises the training",
            todo="remove it, or use tfx.components.Trainer for that executor",
        )
