"""The built-in trainer_fn: the declaration's Estimator and specs, by TFX's legacy contract of a trainer_fn."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Optional

import tensorflow as tf
from tfx.components.trainer.fn_args_utils import FnArgs

from tfx_estimator.components.trainer.declared_input import DeclaredInput, declared_input, from_columns, table_params
from tfx_estimator.components.trainer.estimator.first_call import FirstCall, call_again, call_first
from tfx_estimator.components.trainer.estimator.recorded_params import OPTIMIZER_KEY, SPEC_KEY, RecordedParams
from tfx_estimator.components.trainer.export import rename_signatures
from tfx_estimator.components.trainer.settings import RESIZED, SETTINGS_KEY, Settings
from tfx_estimator.components.trainer.task.user_code import find_function, is_model_fn
from tfx_estimator.data.encoded_images import decode_encoded
from tfx_estimator.data.features import COLUMNS, ENCODED, EXAMPLES, IMAGE, IMAGES
from tfx_estimator.data.preprocessing import decode_images, encode_images
from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator
from tfx_estimator.model_fn.step.classifier import make_model_fn, make_run_config
from tfx_estimator.model_fn.user_models.checks import refuse_step_options
from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.config.known import TABLE_NAMES
from tfx_estimator.pipeline.config.runtime import parts_at_once
from tfx_estimator.pipeline.config.trainer import TrainerSection

bring_back_estimator()

_Transform = Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]]
# An Estimator, and further entries of the spec, for reports.
_Made = tuple[tf.estimator.Estimator, dict[str, Any]]


def trainer_fn(fn_args: FnArgs, schema: Optional[Any]) -> dict[str, Any]:
    """Builds the Estimator and the specs of training, evaluation and export.

    Source of the contract: `tfx.components.trainer.executor.Executor`.

    Args:
        fn_args: TFX's arguments; `custom_config` holds the settings of the Trainer.
        schema: Unused: the Transform graph holds it.

    Returns:
        `estimator`, `train_spec`, `eval_spec` and, if TFMA supports EvalSavedModels, `eval_input_receiver_fn`.
    """
    settings: Settings = (fn_args.custom_config or {}).get(SETTINGS_KEY) or Settings()
    section = settings.trainer
    assert section is not None, "the built-in trainer_fn trains a declaration"
    table = settings.task if settings.table else None
    declared = declared_input(fn_args, section, functools.partial(_global_step, fn_args.model_run_dir), table)
    feature_spec, transform = declared.feature_spec, declared.transform_output.transform_raw_features
    function = find_function(section.model or "")
    is_own = is_model_fn(function) and section.model not in TABLE_NAMES["trainer.model"]
    declared.require(*([declared.weight] if declared.weight and not is_own else []))
    config = make_run_config(section, fn_args.model_run_dir)
    of_table = table_params(declared, table) if table else {}
    if is_model_fn(function):
        estimator, recorded = _of_model_fn(function, section, settings, config, of_table)
    else:
        classes = of_table.get("num_classes", len(settings.label_names))
        first = call_first(function, section, classes, declared.inputs)
        estimator, recorded = _of_network(function, first, section, settings, config, of_table)
    serving = (
        _of_rows(declared, transform, table.label) if table else _serving_receiver_fn(feature_spec, transform, settings)
    )
    evaluated = stacks.current().has_eval_saved_model
    return {
        "estimator": estimator,
        "train_spec": tf.estimator.TrainSpec(declared.reader.input_fn, max_steps=section.train_steps),
        "eval_spec": tf.estimator.EvalSpec(
            declared.reader.input_fn,
            steps=section.eval_steps,
            exporters=[_Exporter("serving", serving)],
        ),
        **({"eval_input_receiver_fn": _eval_receiver_fn(feature_spec, transform, declared.label)} if evaluated else {}),
        **recorded,
    }


def _of_model_fn(
    function: Callable[..., Any],
    section: TrainerSection,
    settings: Settings,
    config: tf.estimator.RunConfig,
    of_table: dict[str, Any],
) -> _Made:
    """Makes the Estimator of a user's model_fn."""
    refuse_step_options(section, "is a whole model_fn")
    # Recorded, to report options that the model_fn does not read.
    params = RecordedParams(params_of(section, settings, of_table))
    # An Estimator rejects params if the model_fn does not take them.
    takes_params = "params" in inspect.signature(function).parameters
    estimator = tf.estimator.Estimator(function, config=config, params=params if takes_params else None)
    return estimator, {SPEC_KEY: params}


def _of_network(
    function: Callable[..., Any],
    first: FirstCall,
    section: TrainerSection,
    settings: Settings,
    config: tf.estimator.RunConfig,
    of_table: dict[str, Any],
) -> _Made:
    """Makes the Estimator of a network, which the built-in model_fn trains."""
    params = {
        # Without trainer.params: these are arguments of the network function, and their names may clash.
        **_built_in_params(section, settings),
        **of_table,
        "gradient_compression": section.distribution.train.gradient_compression,
        "gradient_accumulation": section.gradient_accumulation,
        "parallel_parts": parts_at_once(section),
        "precision": section.precision,
        "xla": section.xla,
    }
    model_fn = make_model_fn(
        lambda classes: call_again(function, classes, section.params, first),
        section if section.is_divided else None,
        first.given,
    )
    estimator = tf.estimator.Estimator(model_fn, config=config, params=params)
    return estimator, {OPTIMIZER_KEY: section.optimizer}


def params_of(section: TrainerSection, settings: Settings, of_table: Optional[dict[str, Any]] = None) -> dict[str, Any]:
    """Returns the params of a user's model_fn: declared options, those of a table, and `trainer.params`."""
    return {**_built_in_params(section, settings), **(of_table or {}), **section.params}


def _built_in_params(section: TrainerSection, settings: Settings) -> dict[str, Any]:
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
    """Returns the step that training will start from."""
    checkpoint = tf.train.latest_checkpoint(model_dir)
    return int(tf.train.load_variable(checkpoint, "global_step")) if checkpoint else 0


def _serving_receiver_fn(
    feature_spec: dict[str, Any], transform: _Transform, settings: Settings
) -> Callable[[], tf.estimator.export.ServingInputReceiver]:
    """Makes a `serving_input_receiver_fn`, whose signatures share the Transform graph.

    `serving_default` takes `examples`, serialized tf.Examples, string [batch]; `images` takes `images`, uint8 [batch,
    height, width, channels]; `encoded`, if `settings.encoded`, takes PNG and JPEG files, string [batch].
    """
    image_shape = settings.image_shape

    # Without AutoGraph, which takes seconds to convert Transform's code.
    @tf.autograph.experimental.do_not_convert
    def serving_input_receiver_fn() -> tf.estimator.export.ServingInputReceiver:
        examples, others = tf.compat.v1.placeholder(tf.string, [None], name=EXAMPLES), {}
        if settings.encoded:
            # One graph for both signatures: the input of the other one is empty.
            empty = tf.zeros([0], tf.string)
            examples = tf.compat.v1.placeholder_with_default(empty, [None], name=EXAMPLES)
            files = tf.compat.v1.placeholder_with_default(empty, [None], name=ENCODED)
            others = {ENCODED: {ENCODED: files}}
        parsed = tf.io.parse_example(examples, {IMAGE: feature_spec[IMAGE]})
        pixels = decode_images(parsed[IMAGE], image_shape)
        if settings.encoded:
            pixels = tf.cond(
                tf.size(files) > 0,
                lambda: decode_encoded(files, image_shape, settings.encoded == RESIZED),
                lambda: pixels,
            )
        # All inputs go through this tensor, so that the preprocessing_fn gets the same bytes as in training.
        images = tf.identity(pixels, name=IMAGES)
        encoded = tf.reshape(encode_images(images), [-1, *feature_spec[IMAGE].shape])
        features = transform({IMAGE: encoded})
        return tf.estimator.export.ServingInputReceiver(
            features, {EXAMPLES: examples}, {IMAGES: {IMAGES: images}, **others}
        )

    return serving_input_receiver_fn


def _of_rows(
    declared: DeclaredInput, transform: _Transform, label: str
) -> Callable[[], tf.estimator.export.ServingInputReceiver]:
    """Makes a `serving_input_receiver_fn` of a table's rows.

    `serving_default` takes `examples`, serialized tf.Examples, string [batch]; `columns` a tensor [batch] a column.
    """

    @tf.autograph.experimental.do_not_convert
    def serving_input_receiver_fn() -> tf.estimator.export.ServingInputReceiver:
        # One graph for both signatures: the input of the other one is empty.
        optional = tf.compat.v1.placeholder_with_default
        examples = optional(tf.zeros([0], tf.string), [None], name=EXAMPLES)
        rows = tf.io.parse_example(examples, declared.served_spec)
        columns = {name: optional(tf.zeros([0], each.dtype), [None]) for name, each in declared.columns.items()}
        for name, values in from_columns(columns, declared.served_spec).items():
            is_sparse = isinstance(values, tf.SparseTensor)
            join = functools.partial(tf.sparse.concat, expand_nonconcat_dims=True) if is_sparse else tf.concat
            rows[name] = join(axis=0, **{"sp_inputs" if is_sparse else "values": [rows[name], values]})
        features = transform(rows)
        features.pop(label, None)
        others = {COLUMNS: columns} if columns else {}
        return tf.estimator.export.ServingInputReceiver(features, {EXAMPLES: examples}, others)

    return serving_input_receiver_fn


def _eval_receiver_fn(feature_spec: dict[str, Any], transform: _Transform, label: str) -> Callable[[], Any]:
    """Makes an `eval_input_receiver_fn` for `tfma.export.export_eval_savedmodel`."""

    @tf.autograph.experimental.do_not_convert
    def eval_input_receiver_fn() -> Any:
        from tensorflow_model_analysis.eval_saved_model import export as tfma_export

        examples = tf.compat.v1.placeholder(tf.string, [None], name=EXAMPLES)
        features = transform(tf.io.parse_example(examples, feature_spec))
        return tfma_export.EvalInputReceiver(
            features=features, labels=features.pop(label), receiver_tensors={EXAMPLES: examples}
        )

    return eval_input_receiver_fn
