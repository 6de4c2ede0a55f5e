"""The task of a dry run: trains one step, evaluates and exports, on made-up examples."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_estimator.components.trainer.job import Job, TaskContext
from tfx_estimator.components.trainer.protocol.events import Event
from tfx_estimator.components.trainer.settings import RUN_FN, Settings, built_in_function
from tfx_estimator.components.trainer.task import paths
from tfx_estimator.data.features import IMAGE, LABEL
from tfx_estimator.data.sources.source import SourceInfo
from tfx_estimator.model_fn.bridge import tf1
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.config.class_weights import BALANCED
from tfx_estimator.pipeline.config.data import TransformSection
from tfx_estimator.pipeline.config.known import SHORT_NAMES
from tfx_estimator.pipeline.config.task import CLASSES, Task
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.config.tune import TuneSection
from tfx_estimator.pipeline.user_source import loader
from tfx_estimator.pipeline.user_source.frames import is_users_module

# Per split; the input repeats them for a larger batch.
_MOST_EXAMPLES = 256
# The number of examples in the trial call of the served signature.
_CALLED_WITH = 8
# Limit of made-up images, and their seed.
_MOST_BYTES, _SEED = 64 << 20, 1
_SPLITS = ("train", "eval")
_OPTIONS = ["--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner"]
# The length of a learning rate schedule, while the number of steps is unknown.
_STEPS = 1000


def run(context: TaskContext) -> None:
    """Tries a declaration's code, and reports what was tried."""
    folder = context.job.training_dir
    # Temporary files that libraries leave behind are removed with the folder.
    tempfile.tempdir = folder
    declaration = Declaration.parse_obj(context.settings.declaration)
    trainer, transform = declaration.trainer, declaration.transform

    def begin(what: str) -> None:
        context.progress.write(Event.TRYING, text=what)

    begin("opening the data set")
    # Imports where they are needed, so that errors are reported in order.
    from tfx_estimator.data.sources import open_source

    info = open_source(declaration.data).info
    # TFX packages a module file together with its neighbours.
    loader.install([os.path.dirname(file) for file in (trainer.module_file, transform.module_file) if file])
    shape = "x".join(map(str, info.image_shape))
    begin(f"{transform.preprocessing_fn or transform.module_file or 'standardize'} on made-up images of {shape}")
    from tfx_estimator.model_fn.parallel.strategies import configure_devices
    from tfx_estimator.model_fn.step import compiling, objective

    compiling.TRIED_FOR[:] = [trainer.distribution.train.replicas]
    # Before the preprocessing_fn initialises TensorFlow.
    configure_devices(cpus=trainer.logical_cpus)
    examples = min(trainer.global_batch_size, _MOST_EXAMPLES)
    inputs = make_inputs(os.path.join(folder, "inputs"), info, transform, examples)
    if not (trainer.module_file or transform.target in SHORT_NAMES["transform.preprocessing_fn"].values()):
        _check_labels(inputs)
    _check_evaluation(declaration, inputs, info)
    # One replica; of the distribution only options stay that a model may refuse.
    kept = {"gradient_compression": trainer.distribution.train.gradient_compression}
    settings = dataclasses.replace(
        context.settings.with_trainer(distribution={"train": kept}, **stand_ins(trainer, info.num_classes)),
        image_shape=info.image_shape,
        label_names=info.label_names,
        declared=(),
    )
    if declaration.tune is not None and trainer.module_file:
        inputs["hyperparameters"] = [_first_values(declaration.tune, folder)]
    job = _make_job(context.job, settings, inputs)
    name = trainer.model or os.path.basename(trainer.module_file or "")
    if job.path == RUN_FN:
        begin(f"the import of {name}; its run_fn was not called, as it may train for any time")
        _check_run_fn(job)
    else:
        begin(f"a step, an evaluation and the export of {name}, with batches of {trainer.global_batch_size:,}")
        paths.run(dataclasses.replace(context, job=job, tried_for=trainer.distribution))
        for dtype in objective.HALVES:
            begin(f"its logits are computed in {dtype}: give the last layer dtype='float32', as Keras's guide does")
        begin(_evaluate_as_served(job, declaration, info, inputs))
    context.progress.write(Event.TRIED)


def stand_ins(section: TrainerSection, classes: int) -> dict[str, Any]:
    """Replaces epochs by a number of steps, and balanced class weights by equal ones."""
    changed: dict[str, Any] = {}
    if section.train_steps is None:
        changed.update(train_steps=_STEPS, train_epochs=None)
    if section.class_weights == BALANCED:
        changed["class_weights"] = [1.0] * classes
    return changed


def make_inputs(folder: str, info: SourceInfo, transform: TransformSection, examples: int) -> dict[str, Any]:
    """Writes a Trainer's inputs: random images of the data set's shape, their schema, and the Transform graph."""
    import tensorflow_transform as tft
    import tensorflow_transform.beam as tft_beam
    from apache_beam import Create, Pipeline
    from google.protobuf import text_format
    from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils
    from tfx.types import standard_artifacts

    from tfx_estimator.components.image_schema_gen.executor import SCHEMA_FILE, image_schema

    count = max(min(examples, _MOST_BYTES // info.image_bytes), 1)
    random = np.random.default_rng(_SEED)
    raw = [{IMAGE: random.bytes(info.image_bytes), LABEL: number % info.num_classes} for number in range(count)]
    schema = image_schema(info.num_classes)
    metadata = dataset_metadata.DatasetMetadata.from_feature_spec(
        schema_utils.schema_as_feature_spec(schema).feature_spec
    )
    for split in _SPLITS:
        _write(os.path.join(folder, "examples", f"Split-{split}"), metadata.schema, raw)
    os.makedirs(os.path.join(folder, "schema"))
    Path(folder, "schema", SCHEMA_FILE).write_text(text_format.MessageToString(schema), encoding="utf-8")
    graph = os.path.join(folder, "transform_graph")
    # Not to the Trainer's code, which the same process runs.
    face = tf1.shown(is_users_module) if transform.tf1 else contextlib.nullcontext()
    with face, Pipeline(argv=_OPTIONS) as pipeline, tft_beam.Context(temp_dir=os.path.join(folder, "tmp")):
        analyzed = (pipeline | Create(raw), metadata) | tft_beam.AnalyzeDataset(_preprocessing_fn(transform, info))
        _ = analyzed | tft_beam.WriteTransformFn(graph)
        _ = metadata | tft_beam.WriteMetadata(os.path.join(graph, tft.TFTransformOutput.RAW_METADATA_DIR), pipeline)
    artifacts: dict[str, Any] = {
        "examples": standard_artifacts.Examples(),
        "schema": standard_artifacts.Schema(),
        "transform_graph": standard_artifacts.TransformGraph(),
    }
    for name, artifact in artifacts.items():
        artifact.uri = os.path.join(folder, name)
    artifacts["examples"].split_names = json.dumps(_SPLITS)
    return {name: [artifact] for name, artifact in artifacts.items()}


def _write(folder: str, schema: Any, raw: list[dict[str, Any]]) -> None:
    from tensorflow_transform.coders import example_proto_coder

    encode = example_proto_coder.ExampleProtoCoder(schema).encode
    os.makedirs(folder)
    with tf.io.TFRecordWriter(os.path.join(folder, "data_tfrecord-00000-of-00001")) as writer:
        for each in raw:
            writer.write(encode(each))


def _preprocessing_fn(transform: TransformSection, info: SourceInfo) -> Callable[..., Any]:
    """Returns the declared function, which is called as TFX's Transform does."""
    from tfx.components.util import udf_utils

    name = "preprocessing_fn"
    if transform.module_file:
        function = udf_utils.get_fn({"module_path": Path(transform.module_file).stem}, name)
    else:
        function = udf_utils.get_fn({name: loader.import_name(transform.target.replace(":", "."))}, name)
    if "custom_config" in inspect.signature(function).parameters:
        return functools.partial(function, custom_config={"image_shape": list(info.image_shape)})
    return function


def _make_job(job: Job, settings: Settings, inputs: dict[str, Any]) -> Job:
    """Makes the job that the Trainer would pass to a task with these inputs."""
    from tfx.types import artifact_utils, standard_artifacts

    outputs: dict[str, Any] = {"model": standard_artifacts.Model(), "model_run": standard_artifacts.ModelRun()}
    for name, artifact in outputs.items():
        artifact.uri = os.path.join(job.training_dir, "outputs", name)
    section = settings.trainer
    assert section is not None
    properties = {
        "train_args": json.dumps({"num_steps": section.train_steps or _STEPS}),
        "eval_args": json.dumps({"num_steps": section.eval_steps or 0}),
        "custom_config": "null",
        **built_in_function(section),
        # As a packaged module it is imported by its name.
        **({"module_path": Path(section.module_file).stem} if section.module_file else {}),
    }
    return dataclasses.replace(
        job,
        inputs=artifact_utils.jsonify_artifact_dict(inputs),
        outputs=artifact_utils.jsonify_artifact_dict({name: [artifact] for name, artifact in outputs.items()}),
        exec_properties=properties,
        settings=settings,
        path=paths.name_of(properties, settings),
        training_dir=os.path.join(job.training_dir, "training"),
    )


def _first_values(tune: TuneSection, folder: str) -> Any:
    """Makes the artifact for code that reads `fn_args.hyperparameters`: the first value of each range."""
    from tfx.types import standard_artifacts

    from tfx_estimator.components.trainer.settling import write_config
    from tfx_estimator.components.tuner.trials import first_values

    artifact = standard_artifacts.HyperParameters()
    artifact.uri = os.path.join(folder, "hyperparameters")
    write_config(artifact.uri, first_values(tune))
    return artifact


def _check_run_fn(job: Job) -> None:
    """Imports run_fn, and checks its arguments."""
    from tfx_estimator.components.trainer.task.user_code import function_of

    run_fn = function_of(job.exec_properties, "run_fn")
    try:
        inspect.signature(run_fn).bind("fn_args")
    except TypeError as error:
        raise UserCodeError(
            f"run_fn cannot be called with fn_args alone: {error}",
            expected="`def run_fn(fn_args)`",
            todo="give its other arguments a default",
        ) from None


def _check_labels(inputs: dict[str, Any]) -> None:
    """Refuses changed labels: the Evaluator uses those of the examples."""
    import tensorflow_transform as tft

    graph = tft.TFTransformOutput(inputs["transform_graph"][0].uri)
    records = _records(inputs)
    returned = graph.transform_raw_features(tf.io.parse_example(records, graph.raw_feature_spec())).get(LABEL)
    if not isinstance(returned, tf.Tensor):
        return
    # Parsed from the records: a graph's inputs may not be read after it has run.
    given = [tf.train.Example.FromString(record).features.feature[LABEL].int64_list.value[0] for record in records]
    for label, other in zip(given, returned.numpy().ravel().tolist()):
        if label != other:
            raise UserCodeError(
                f"the preprocessing_fn returns the label {other} for {label}",
                expected="`label` unchanged: the Evaluator, the report and the class names use the original labels",
                todo='return inputs["label"] unchanged, and change labels when making the data set',
            )


def _check_evaluation(declaration: Declaration, inputs: dict[str, Any], info: Any) -> None:
    """Checks the slices' features, and the metrics on made-up predictions: the Evaluator would fail only later."""
    import tensorflow_transform as tft

    from tfx_estimator.components.evaluator.eval_config import eval_config
    from tfx_estimator.components.evaluator.extractors import check_features
    from tfx_estimator.components.evaluator.trial import try_metrics

    task = Task(CLASSES, LABEL, info.label_names)
    config = eval_config(declaration.evaluator, task)
    graph = tft.TFTransformOutput(inputs["transform_graph"][0].uri)
    check_features(config, tuple(graph.raw_feature_spec()), graph.transformed_feature_spec())
    if declaration.evaluator.metrics:
        try_metrics(config, task)


def _evaluate_as_served(job: Job, declaration: Declaration, info: Any, inputs: dict[str, Any]) -> str:
    """Finds the scores as the Evaluator will, checks its metrics, and calls the model; returns a description."""
    from tfx.utils import path_utils

    from tfx_estimator.components.evaluator.completion import complete
    from tfx_estimator.components.evaluator.eval_config import eval_config
    from tfx_estimator.components.evaluator.trial import try_signature
    from tfx_estimator.components.served_outputs import choose_scores, read_outputs

    model = path_utils.serving_model_dir(job.exports_dir)
    outputs = read_outputs(model)
    scores = choose_scores(outputs, declaration.evaluator.prediction_key, info.num_classes)
    config = eval_config(declaration.evaluator, Task(CLASSES, LABEL, info.label_names))
    complete(config, scores, None)
    try_signature(model, config, _records(inputs)[:_CALLED_WITH])
    return f"its served outputs: {', '.join(output.name for output in outputs)}; evaluated is `{scores.key}`"


def _records(inputs: dict[str, Any]) -> list[bytes]:
    """Returns the made-up examples, serialized."""
    files = tf.io.gfile.glob(os.path.join(inputs["examples"][0].uri, "Split-train", "*"))
    return list(tf.data.TFRecordDataset(files).as_numpy_iterator())
