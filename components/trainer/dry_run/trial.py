"""The task of a dry run: trains one step, evaluates and exports, on made-up examples."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfx_estimator.components.trainer.dry_run.inputs import make_inputs, make_table_inputs, read_raw
from tfx_estimator.components.trainer.job import Job, TaskContext
from tfx_estimator.components.trainer.protocol.events import Event
from tfx_estimator.components.trainer.settings import RUN_FN, Settings, built_in_function
from tfx_estimator.components.trainer.task import paths
from tfx_estimator.data.features import LABEL
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.config.beam import IN_PROCESS
from tfx_estimator.pipeline.config.class_weights import BALANCED
from tfx_estimator.pipeline.config.known import SHORT_NAMES
from tfx_estimator.pipeline.config.table import task as declared_task
from tfx_estimator.pipeline.config.task import CLASSES, Task
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.config.tune import TuneSection
from tfx_estimator.pipeline.user_source import loader

# Per split; the input repeats them for a larger batch.
_MOST_EXAMPLES = 256
# The number of examples in the trial call of the served signature.
_CALLED_WITH = 8
# Limit of made-up images, and their seed.
_MOST_BYTES, _SEED = 64 << 20, 1
_SPLITS = ("train", "eval")
_OPTIONS = [f"--runner={IN_PROCESS}"]
# The length of a learning rate schedule, while the number of steps is unknown.
_STEPS = 1000


def run(context: TaskContext) -> None:
    """Tries a declaration's code, and reports what was tried."""
    folder = context.job.training_dir
    # Temporary files that libraries leave behind are removed with the folder.
    tempfile.tempdir = folder
    declaration = Declaration.parse_obj(context.settings.declaration)
    trainer, data = declaration.trainer, declaration.data
    transform = declaration.transform.of_table() if data.is_table else declaration.transform

    def begin(what: str) -> None:
        context.progress.write(Event.TRYING, text=what)

    begin("opening the data set")
    # Imports where they are needed, so that errors are reported in order.
    from tfx_estimator.data.sources import open_source

    info = None if data.is_table else open_source(data).info
    task = Task(CLASSES, LABEL, info.label_names) if info else declared_task(declaration)
    table = {} if info else dataclasses.asdict(task)
    # TFX packages a module file together with its neighbours.
    loader.install([os.path.dirname(file) for file in (trainer.module_file, transform.module_file) if file])
    on = f"made-up images of {'x'.join(map(str, info.image_shape))}" if info else "the first rows"
    begin(f"{transform.preprocessing_fn or transform.module_file or 'standardize'} on {on}")
    from tfx_estimator.model_fn.parallel.strategies import configure_devices
    from tfx_estimator.model_fn.step import compiling, head

    compiling.TRIED_FOR[:] = [trainer.distribution.train.replicas]
    # Before the preprocessing_fn initialises TensorFlow.
    configure_devices(cpus=trainer.logical_cpus)
    examples = min(trainer.global_batch_size, _MOST_EXAMPLES)
    made = os.path.join(folder, "inputs")
    inputs = (
        make_inputs(made, info, transform, examples)
        if info
        else make_table_inputs(made, data, transform, examples, table)
    )
    records = read_raw(made)
    if not (
        data.is_table or trainer.module_file or transform.target in SHORT_NAMES["transform.preprocessing_fn"].values()
    ):
        _check_labels(inputs, records)
    _check_evaluation(declaration, inputs, task)
    # One replica; of the distribution only options stay that a model may refuse.
    kept = {"gradient_compression": trainer.distribution.train.gradient_compression}
    settings = dataclasses.replace(
        context.settings.with_trainer(distribution={"train": kept}, **stand_ins(trainer, len(task.names))),
        image_shape=info.image_shape if info else (0, 0, 0),
        label_names=task.names,
        declared=(),
        table=table,
    )
    if declaration.tune is not None and trainer.module_file:
        inputs["hyperparameters"] = [_first_values(declaration.tune, folder)]
    job = make_job(context.job, settings, inputs)
    name = trainer.model or os.path.basename(trainer.module_file or "")
    if job.path == RUN_FN:
        begin(f"the import of {name}; its run_fn was not called, as it may train for any time")
        _check_run_fn(job)
    else:
        begin(f"a step, an evaluation and the export of {name}, with batches of {trainer.global_batch_size:,}")
        paths.run(dataclasses.replace(context, job=job, tried_for=trainer.distribution))
        for dtype in head.HALVES:
            begin(f"its logits are computed in {dtype}: give the last layer dtype='float32', as Keras's guide does")
        begin(_evaluate_as_served(job, declaration, task, records))
    context.progress.write(Event.TRIED)


def stand_ins(section: TrainerSection, classes: int) -> dict[str, Any]:
    """Replaces epochs by a number of steps, and balanced class weights by equal ones."""
    changed: dict[str, Any] = {}
    if section.train_steps is None:
        changed.update(train_steps=_STEPS, train_epochs=None)
    if section.class_weights == BALANCED:
        changed["class_weights"] = [1.0] * classes
    return changed


def make_job(job: Job, settings: Settings, inputs: dict[str, Any]) -> Job:
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


def _check_labels(inputs: dict[str, Any], records: list[bytes]) -> None:
    """Refuses changed labels: the Evaluator uses those of the examples."""
    import tensorflow_transform as tft

    graph = tft.TFTransformOutput(inputs["transform_graph"][0].uri)
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


def _check_evaluation(declaration: Declaration, inputs: dict[str, Any], task: Task) -> None:
    """Checks the slices' features, and the metrics on made-up predictions: the Evaluator would fail only later."""
    import tensorflow_transform as tft

    from tfx_estimator.components.evaluator.eval_config import eval_config
    from tfx_estimator.components.evaluator.extractors import check_features
    from tfx_estimator.components.evaluator.trial import try_metrics

    config = eval_config(declaration.evaluator, task)
    graph = tft.TFTransformOutput(inputs["transform_graph"][0].uri)
    check_features(config, tuple(graph.raw_feature_spec()), graph.transformed_feature_spec())
    if declaration.evaluator.metrics:
        try_metrics(config, task)


def _evaluate_as_served(job: Job, declaration: Declaration, task: Task, records: list[bytes]) -> str:
    """Finds the scores as the Evaluator will, checks its metrics, and calls the model; returns a description."""
    from tfx.utils import path_utils

    from tfx_estimator.components.evaluator.completion import complete
    from tfx_estimator.components.evaluator.eval_config import eval_config
    from tfx_estimator.components.evaluator.trial import try_signature
    from tfx_estimator.components.served_outputs import choose_scores, read_outputs

    model = path_utils.serving_model_dir(job.exports_dir)
    outputs = read_outputs(model)
    scores = choose_scores(outputs, declaration.evaluator.prediction_key, task.width)
    config = eval_config(declaration.evaluator, task)
    complete(config, scores, None)
    try_signature(model, config, records[:_CALLED_WITH])
    return f"its served outputs: {', '.join(output.name for output in outputs)}; evaluated is `{scores.key}`"
