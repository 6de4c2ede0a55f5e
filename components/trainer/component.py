"""The Trainer component."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, Optional

from tfx import types
from tfx.components.trainer import component as tfx_trainer
from tfx.dsl.components.base import executor_spec
from tfx.proto import trainer_pb2

from components.trainer.executor import Executor
from components.trainer.settings import SETTINGS_KEY, Settings
from pipeline.config.source import fingerprint_source


class Trainer(tfx_trainer.Trainer):
    """A drop-in for `tfx.components.Trainer` that trains in a supervised, fresh process.

    It takes a module file with `trainer_fn` (the legacy Estimator contract) or `run_fn`, or the dotted path of such a
    function, and adds: a process whose memory and devices are its own, a log file per task, deadlines, a training
    folder that a retry resumes from, and a model that is either whole or not there.

        trainer = Trainer(
            module_file="taxi_utils.py",
            examples=example_gen.outputs["examples"],
            schema=schema_gen.outputs["schema"],
            transform_graph=transform.outputs["transform_graph"],
            train_args=trainer_pb2.TrainArgs(num_steps=10_000),
            eval_args=trainer_pb2.EvalArgs(num_steps=5_000),
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
        settings: Deadlines, strategies and the declaration; None takes the defaults.

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
        *,
        settings: Optional[Settings] = None,
    ) -> None:
        settings = settings or Settings()
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
