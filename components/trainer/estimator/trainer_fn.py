"""The built-in trainer_fn: what the declaration says, in the legacy Estimator contract that any module file may use."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Optional

import tensorflow as tf
from tfx.components.trainer.fn_args_utils import FnArgs

from tfx_estimator.components.trainer.compiled_notices import compiled_notices
from tfx_estimator.components.trainer.declared_input import declared_input
from tfx_estimator.components.trainer.estimator import compiled_model, receivers
from tfx_estimator.components.trainer.estimator.recorded_params import OPTIMIZER_KEY, SPEC_KEY, RecordedParams
from tfx_estimator.components.trainer.export import rename_signatures
from tfx_estimator.components.trainer.settings import SETTINGS_KEY, Settings
from tfx_estimator.components.trainer.task.user_code import find_function, is_model_fn
from tfx_estimator.model_fn.accumulation import refuse_accumulation
from tfx_estimator.model_fn.classifier import make_model_fn
from tfx_estimator.model_fn.compiling import refuse_xla
from tfx_estimator.model_fn.compression import refuse_compression
from tfx_estimator.model_fn.division import refuse_division
from tfx_estimator.model_fn.precision import FLOAT32
from tfx_estimator.model_fn.run_config import make_run_config
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.errors import UserCodeError


def trainer_fn(fn_args: FnArgs, schema: Optional[Any]) -> dict[str, Any]:
    """Builds the Estimator and the specs of training, evaluation and export.

    Source of the contract: `tfx.components.trainer.executor.Executor`.

    Args:
        fn_args: TFX's arguments; `custom_config` holds the settings of the Trainer.
        schema: Not needed, the Transform graph holds it.

    Returns:
        `estimator`, `train_spec`, `eval_spec` and `eval_input_receiver_fn`.
    """
    settings = Settings.from_dict((fn_args.custom_config or {}).get(SETTINGS_KEY, {}))
    section = settings.trainer
    if section is None:
        raise UserCodeError(
            "the built-in trainer_fn has no declaration to train",
            expected="Settings(declaration=…)",
            todo="name your own trainer_fn, run_fn or module_file",
        )
    declared = declared_input(fn_args, section, functools.partial(_global_step, fn_args.model_run_dir))
    feature_spec, transform = declared.feature_spec, declared.transform_output.transform_raw_features
    declared.require()
    function = find_function(section.model or "")
    config = make_run_config(section, fn_args.model_run_dir)
    # Params of a model_fn of the user's, to tell him what it does not take; and whatever else is to be told.
    recorded: dict[str, Any] = {}
    if is_model_fn(function):
        refuse_accumulation(section.gradient_accumulation, section.model or "", "is a whole model_fn")
        refuse_division(section, section.model or "", "is a whole model_fn")
        refuse_xla(section.xla, section.model or "", "is a whole model_fn")
        refuse_compression(section.distribution.train.gradient_compression, section.model or "")
        if section.precision != FLOAT32:
            raise UserCodeError(
                f"trainer.precision: {section.precision}, and {section.model!r} is a whole model_fn, which makes its "
                "own network",
                expected="float32, beside a model_fn",
                todo="remove it, and have the model_fn compute in that precision",
            )
        given = RecordedParams(params_of(section, settings))
        recorded = {SPEC_KEY: given}
        # An Estimator refuses params for a model_fn that does not take them.
        takes_params = "params" in inspect.signature(function).parameters
        estimator = tf.estimator.Estimator(function, config=config, params=given if takes_params else None)
    elif (
        compiled := (first := compiled_model.find_compiled(function, settings, declared.transformed_spec)).model
    ) is not None:
        refuse_accumulation(section.gradient_accumulation, section.model or "", "returns a compiled model")
        refuse_division(section, section.model or "", "returns a compiled model")
        refuse_xla(section.xla, section.model or "", "returns a compiled model")
        estimator = compiled_model.make_estimator(compiled, settings, config)
        recorded = {compiled_model.NOTICES_KEY: compiled_notices(compiled, section, settings.declared)}
    else:
        # trainer.params are the network's own arguments, whatever their names.
        params = _built_in_params(section, settings)
        params["gradient_compression"] = section.distribution.train.gradient_compression
        divided = section if section.is_divided else None
        model_fn = make_model_fn(
            lambda classes: first.call_again(function, classes, section.params), divided, first.given
        )
        params["gradient_accumulation"] = section.gradient_accumulation
        params["precision"] = section.precision
        params["xla"] = section.xla
        estimator = tf.estimator.Estimator(model_fn, config=config, params=params)
        recorded = {OPTIMIZER_KEY: section.optimizer}
    serving = receivers.serving_receiver_fn(feature_spec, transform, settings.image_shape)
    return {
        "estimator": estimator,
        "train_spec": tf.estimator.TrainSpec(declared.reader.input_fn, max_steps=section.train_steps),
        "eval_spec": tf.estimator.EvalSpec(
            declared.reader.input_fn,
            steps=section.eval_steps,
            exporters=[_Exporter("serving", serving)],
        ),
        "eval_input_receiver_fn": receivers.eval_receiver_fn(feature_spec, transform),
        **recorded,
    }


def params_of(section: TrainerSection, settings: Settings) -> dict[str, Any]:
    """Returns the params of a model_fn of the user's: what is declared, and `trainer.params`, which come first.

    Args:
        section: The declared trainer.
        settings: Of the Trainer.
    """
    return {**_built_in_params(section, settings), **section.params}


def _built_in_params(section: TrainerSection, settings: Settings) -> dict[str, Any]:
    """The same of the built-in model_fn."""
    return {
        "num_classes": len(settings.label_names),
        "label_names": list(settings.label_names),
        "image_shape": settings.image_shape,
        "train_steps": section.train_steps,
        "global_batch_size": section.global_batch_size,
        "optimizer": section.optimizer.resolved(),
        **section.loss_options,
        "seed": section.seed,
    }


class _Exporter(tf.estimator.FinalExporter):
    """Exports once, at the end, with signatures named after their inputs."""

    def export(self, *args: Any, **kwargs: Any) -> Any:
        path = super().export(*args, **kwargs)
        if path:
            rename_signatures(tf.compat.as_str(path))
        return path


def _global_step(model_dir: str) -> int:
    """The step that training will start from."""
    checkpoint = tf.train.latest_checkpoint(model_dir)
    return int(tf.train.load_variable(checkpoint, "global_step")) if checkpoint else 0
