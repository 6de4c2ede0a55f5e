"""The Trainer component."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, Optional, Union

from tfx import types
from tfx.components.trainer import component as tfx_trainer
from tfx.dsl.components.base import executor_spec
from tfx.orchestration.data_types import RuntimeParameter
from tfx.orchestration.portable import data_types
from tfx.proto import trainer_pb2
from tfx.proto.orchestration import driver_output_pb2
from tfx.types import artifact_utils, standard_component_specs

from tfx_estimator.components.execution import UnkeyedDriver
from tfx_estimator.components.trainer import published, training_folder
from tfx_estimator.components.trainer.arguments import (
    check_lengths,
    check_settings,
    find_contract,
    read_arguments,
)
from tfx_estimator.components.trainer.executor import Executor
from tfx_estimator.components.trainer.settings import OPERATION_KEY, Settings
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.warm_start import WarmStart
from tfx_estimator.pipeline.user_source.trainer_functions import RUN_FN, TRAINER_FN


class Driver(UnkeyedDriver):
    """Keeps deadlines, restarts and logging out of the cache key, and finds unpublished trainings of earlier runs."""

    UNKEYED = (OPERATION_KEY,)

    def run(self, execution_info: data_types.ExecutionInfo) -> driver_output_pb2.DriverOutput:
        """See BaseDriver."""
        model_run = artifact_utils.get_single_uri(execution_info.output_dict[standard_component_specs.MODEL_RUN_KEY])
        root = Settings.of(execution_info.exec_properties).training_root or training_folder.root_of(model_run)
        published.mark_unpublished(root, self._metadata_handle)
        return super().run(execution_info)


class Trainer(tfx_trainer.Trainer):
    """A drop-in for `tfx.components.Trainer` that trains in a supervised, fresh process.

    It takes a module file with `trainer_fn` (the legacy Estimator contract) or `run_fn`, or the dotted path of such a
    function, and adds: a process with its own memory and devices, a log file per task, deadlines, a training folder
    that a retry resumes from, and an atomically published model. With `distribution`, the Estimator of an unedited
    trainer_fn trains under any declared strategy: each step's global batch is one batch of its input_fn, and a loss
    that the strategy would scale to another update is refused before training.

        trainer = Trainer(
            module_file="taxi_utils.py",
            examples=example_gen.outputs["examples"],
            schema=schema_gen.outputs["schema"],
            transform_graph=transform.outputs["transform_graph"],
            train_args=trainer_pb2.TrainArgs(num_steps=10_000),
            eval_args=trainer_pb2.EvalArgs(num_steps=5_000),
            distribution={"train": {"strategy": "multi_worker_mirrored", "workers": 2}, "evaluator": True},
        )

    Component `outputs`: `model`: the serving SavedModel, and the EvalSavedModel if there is one; `model_run`:
    checkpoints, TensorBoard events, logs of the tasks, the declaration.

    Args:
        examples: Channel of `standard_artifacts.Examples`.
        transformed_examples: Old name of `examples`.
        transform_graph: Channel of `standard_artifacts.TransformGraph`.
        schema: Channel of `standard_artifacts.Schema`.
        base_model: Channel of the `standard_artifacts.Model` to start from.
        hyperparameters: Channel of `standard_artifacts.HyperParameters`.
        module_file: Path of a TFX module file. As in TFX's Trainer, this and the next five may be a RuntimeParameter.
        run_fn: Dotted path of a `run_fn(fn_args)`.
        trainer_fn: Dotted path of a `trainer_fn(fn_args, schema)`.
        train_args: Splits and steps of training.
        eval_args: Splits and steps of evaluation.
        custom_config: `fn_args.custom_config`.
        custom_executor_spec: TFX's executor of a trainer_fn or of a run_fn: it only chooses the function of a module
            file, and is replaced by this Trainer's executor. None is the run_fn, if there is one.
        distribution: The section `trainer.distribution` of a declaration: strategies, evaluator, restarts. None trains
            on one device.
        warm_start: The section `trainer.warm_start`, for a trainer_fn: `{"checkpoint": "before/model.ckpt-9"}`. The
            weights at the time of the pipeline's definition are part of the cache key.
        tf1: The entry `trainer.tf1`: the module is written for TensorFlow 1.
        threads: The section `trainer.threads` of a declaration: `{"intra_op": 1}`. Like the next three, not part of
            the cache key.
        gpu: The section `trainer.gpu`: `{"memory_growth": True}`.
        onednn: The entry `trainer.onednn`: oneDNN's kernels on CPU.
        profile: The section `trainer.profile`, for a trainer_fn: `{"start_step": 100, "steps": 20}`.
        training_root: Folder for this pipeline's training folders, such as `gs://bucket/trainings`, on a service that
            gives each job its own folder: the next job resumes a killed one from its last checkpoint. None is next to
            the `model_run` artifacts. Not part of the cache key.
        settings: Deadlines: `Settings(stall_timeout=3600.0)`; `create_pipeline` adds the declaration. None is the
            default.

    Raises:
        DeclarationError: The distribution is invalid, given twice, or not for this function; likewise for weights,
            threads, GPUs, kernels, profile, training root and settings; or the executor is not one of TFX's two.

    Source: https://www.tensorflow.org/tfx/guide/trainer.
    """

    DRIVER_CLASS = Driver
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        examples: Optional[types.BaseChannel] = None,
        transformed_examples: Optional[types.BaseChannel] = None,
        transform_graph: Optional[types.BaseChannel] = None,
        schema: Optional[types.BaseChannel] = None,
        base_model: Optional[types.BaseChannel] = None,
        hyperparameters: Optional[types.BaseChannel] = None,
        module_file: Optional[Union[str, RuntimeParameter]] = None,
        run_fn: Optional[Union[str, RuntimeParameter]] = None,
        trainer_fn: Optional[Union[str, RuntimeParameter]] = None,
        train_args: Optional[Union[trainer_pb2.TrainArgs, RuntimeParameter]] = None,
        eval_args: Optional[Union[trainer_pb2.EvalArgs, RuntimeParameter]] = None,
        custom_config: Optional[Union[dict[str, Any], RuntimeParameter]] = None,
        custom_executor_spec: Optional[executor_spec.ExecutorSpec] = None,
        *,
        distribution: Optional[Union[Mapping[str, Any], Distribution]] = None,
        warm_start: Optional[Union[Mapping[str, Any], WarmStart]] = None,
        tf1: bool = False,
        threads: Optional[Mapping[str, Any]] = None,
        gpu: Optional[Mapping[str, Any]] = None,
        onednn: Optional[bool] = None,
        profile: Optional[Mapping[str, Any]] = None,
        training_root: Optional[Union[str, os.PathLike[str]]] = None,
        settings: Optional[Settings] = None,
    ) -> None:
        settings = check_settings(settings)
        check_lengths(train_args, eval_args)
        contract = find_contract(module_file, run_fn, trainer_fn, custom_executor_spec)
        runtime = {"threads": threads, "gpu": gpu, "onednn": onednn, "profile": profile}
        given = {"distribution": distribution, "warm_start": warm_start, "tf1": tf1 or None, **runtime}
        settings = read_arguments(contract, settings, given)
        if training_root:
            root = os.fspath(training_root)
            settings = dataclasses.replace(settings, training_root=root if is_address(root) else os.path.abspath(root))
        super().__init__(
            examples=examples,
            transformed_examples=transformed_examples,
            transform_graph=transform_graph,
            schema=schema,
            base_model=base_model,
            hyperparameters=hyperparameters,
            module_file=module_file,
            # TFX 1.16 and later has no trainer_fn.
            run_fn=run_fn or trainer_fn,
            train_args=train_args,
            eval_args=eval_args,
            custom_config=custom_config,
        )
        if trainer_fn:
            self.spec.exec_properties[TRAINER_FN] = self.spec.exec_properties.pop(RUN_FN)
        self.spec.exec_properties.update(settings.to_properties())
