"""The Trainer's executor: prepares the folder, supervises the training, publishes the model."""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfx.dsl.components.base import base_executor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils, standard_component_specs

from tfx_estimator.components import read_files
from tfx_estimator.components.baseline_resolver import write_comparable
from tfx_estimator.components.execution import Artifacts
from tfx_estimator.components.in_python import reword
from tfx_estimator.components.inventory import checks_inputs
from tfx_estimator.components.tfds_example_gen.properties import LABEL_NAMES
from tfx_estimator.components.trainer import export, launching, training_folder
from tfx_estimator.components.trainer.cluster.plan import gpu_count
from tfx_estimator.components.trainer.cluster.tf_config import CHIEF, resolve
from tfx_estimator.components.trainer.estimator import checkpoints
from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.jobs import logs_folder, make_job, read_settings, supervise, write_declaration
from tfx_estimator.components.trainer.profiling.profiler import drop_others
from tfx_estimator.components.trainer.replica_check.verdict import may_be_model_fn
from tfx_estimator.components.trainer.settings import HOME_KEY, RUN_FN, Settings
from tfx_estimator.components.trainer.settling import with_counts, with_hyperparameters
from tfx_estimator.components.trainer.supervisor.outcome import Outcome
from tfx_estimator.components.trainer.training_claim import only_job
from tfx_estimator.components.trainer.vocabularies import carry, features_of, read_vocabularies
from tfx_estimator.pipeline.base.ending import scratch
from tfx_estimator.pipeline.base.errors import TfxEstimatorError, UserCodeError
from tfx_estimator.pipeline.base.log import STAYS, get_logger
from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.config.distribution import Devices
from tfx_estimator.pipeline.config.known import expand
from tfx_estimator.pipeline.user_source.functions import may_compile
from tfx_estimator.pipeline.user_source.modules import find_module, is_project

logger = get_logger("trainer")


class Executor(base_executor.BaseExecutor):
    """Trains in fresh processes, and publishes a complete model or raises."""

    @checks_inputs
    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
        """Trains.

        Args:
            input_dict: `examples`, and optionally `schema`, `transform_graph`, `base_model`, `hyperparameters`.
            output_dict: `model` and `model_run`.
            exec_properties: Those of `tfx.components.Trainer`, and the settings: see `settings.py`.

        Raises:
            TrainingError: A task failed or stalled, the exported model is not complete, or another job or run trains
                in this folder.
            PipelineError: The claim of another job cannot be read.
            UserCodeError: The user's code breaks its contract.
            DeclarationError: The number of steps of the epochs is unknown; the examples have no label to balance the
                classes by; tuned values do not fit the declaration; or its run_fn does not take the distribution, which
                the constructor could not know.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        model = artifact_utils.get_single_instance(output_dict[standard_component_specs.MODEL_KEY])
        model_run = artifact_utils.get_single_instance(output_dict[standard_component_specs.MODEL_RUN_KEY])
        home = exec_properties.get(HOME_KEY)
        exec_properties = {key: value for key, value in exec_properties.items() if key != HOME_KEY}
        settings = read_settings(self._context, exec_properties)
        tuned = input_dict.get(standard_component_specs.HYPERPARAMETERS_KEY, [])
        settings, exec_properties = with_hyperparameters(settings, exec_properties, tuned)
        declared = settings
        examples = input_dict.get(standard_component_specs.EXAMPLES_KEY, [])
        settings, exec_properties = with_counts(settings, exec_properties, examples)
        root = settings.training_root or (os.path.join(home, training_folder.FOLDER) if home else "")
        folder = training_folder.locate(model_run.uri, input_dict, exec_properties, declared, root)
        job = make_job(input_dict, output_dict, exec_properties, settings, folder.uri)
        with only_job(folder.base, bool(root)) as check_claim:
            graph = input_dict.get(standard_component_specs.TRANSFORM_GRAPH_KEY, [])
            _prepare(folder, model_run.uri, job, settings, graph[0].uri if graph else "")
            scratch.note(scratch.TRAINING_FOLDER, folder.uri)
            write_declaration(job.training_dir, declared)
            with logs_folder(job.training_dir) as logs, _errors_without_declaration(settings):
                outcome = _train(job, settings, logs)
            if not outcome.publishes:
                # A worker of an external cluster: the chief publishes.
                return
            check_claim()
            outputs = export.publish(job.exports_dir, model.uri)
            write_comparable(model, input_dict[standard_component_specs.EXAMPLES_KEY], outputs, declared.table)
            training_folder.publish(folder, model_run.uri)
            scratch.note(scratch.TRAINING_FOLDER, "")
        read_files.keep(model_run, read_files.of_training(model_run.uri))
        for name, value in outcome.properties().items():
            model_run.set_float_custom_property(name, value)
        if declared.trainer and declared.trainer.train_epochs:
            model_run.set_float_custom_property("train_epochs", float(declared.trainer.train_epochs))
        for name, text in outcome.texts().items():
            model_run.set_string_custom_property(name, text)
        if declared.table:
            model_run.set_string_custom_property(LABEL_NAMES, json.dumps(declared.label_names))


def _train(job: Job, settings: Settings, logs: str) -> Outcome:
    if launching.launcher and (outcome := launching.launcher(job, settings, logs)):
        return outcome
    _warn_of_idle_gpus(settings.distribution.train.devices)
    return supervise(job, logs)


def _warn_of_idle_gpus(devices: Devices) -> None:
    """Warns of GPUs that stay idle, though paid for: the default image's TensorFlow is built for CPUs."""
    if devices.cpu or not (count := gpu_count()):
        return
    # A slow import, only on machines with GPUs.
    import tensorflow as tf

    if not tf.test.is_built_with_cuda():
        logger.warning(
            f"this machine has {count} GPUs, but TensorFlow {tf.__version__} is installed without CUDA: training uses "
            f"CPUs only; build the image with --build-arg LOCK={stacks.current().lock}, see docs/container.md, or "
            "remove the accelerators"
        )


def _prepare(
    folder: training_folder.TrainingFolder, model_run_uri: str, job: Job, settings: Settings, transform_graph: str = ""
) -> None:
    """Makes the training folder, and logs whether training resumes an earlier one of another length."""
    place = resolve(os.environ)
    if place is not None and place.task.type != CHIEF:
        # All tasks of an external cluster start at once: the chief must move an earlier folder before they write.
        training_folder.wait(folder, settings.start_timeout, place.task.name)
        return
    # A run_fn manages its own checkpoints.
    takes_over = job.path != RUN_FN
    begin = functools.partial(_resume, folder.uri, settings, transform_graph)
    earlier = training_folder.prepare(
        folder, model_run_uri, job.exports_dir, takes_over, begin, "Trainer" in settings.rerun
    )
    if job.path != RUN_FN:
        drop_others(folder.uri, settings.section.profile)
    if earlier is None:
        return
    if earlier.steps == folder.steps:
        logger.info(f"this training had ended, but was not published: it resumes from {earlier.uri}")
        return
    steps, step = folder.steps or "all", earlier.step
    found = f"the same training, but of {earlier.steps or 'all'} steps, is at step {step}"
    if not training_folder.is_taken(earlier, folder.steps):
        logger.warning(f"{found}, which is beyond the declared {steps}: training starts at step 0")
        return
    logger.info(f"{found}: training resumes from there, to {steps}")
    section = settings.built_in
    if section and not _sets_learning_rate(section.model or ""):
        if section.optimizer.ends_with_training:
            schedule = f"trainer.optimizer.schedule, {section.optimizer.schedule}, spans trainer.train_steps"
            cut = "had ended" if step == earlier.steps else "is cut"
            logger.warning(
                f"{schedule}: that of {earlier.steps} steps {cut} at step {step}, and from there the rate is that of "
                f"{steps}; to train from step 0 with it, change trainer.seed"
            )
    else:
        logger.warning(f"a learning rate that your code makes of the number of steps is cut at step {step}")


def _resume(training_dir: str, settings: Settings, transform_graph: str) -> None:
    """Copies the checkpoint to go on from, if declared, into a training folder without one."""
    warm_start = settings.section.warm_start
    if warm_start is None or checkpoints.last_step(training_dir) is not None:
        return
    # If it is missing, each task reports that.
    if warm_start.resume and warm_start.source:
        checkpoints.adopt(warm_start.source, training_dir)
        logger.info(f"training resumes from {warm_start.source}")
    if warm_start.blessed and not settings.goes_on:
        text = "training begins with initial weights: no blessed model of an earlier day, with these classes, is here"
        logger.info(text, extra=STAYS)
    elif warm_start.blessed:
        _go_on(training_dir, transform_graph, settings, warm_start.vocabularies or {})


def _go_on(training_dir: str, transform_graph: str, settings: Settings, declared: Mapping[str, Sequence[str]]) -> None:
    """Begins with the weights and slots of the latest blessed model of an earlier day."""
    label = settings.task.label
    earlier, today = map(read_vocabularies, (settings.goes_on["transform_graph"], transform_graph))
    if label in earlier and (label not in today or earlier[label].words != today[label].words):
        raise UserCodeError(
            f"the classes of the label {label} are others than on the earlier day, or in another order",
            expected="the same vocabulary of the label each day",
            todo="number the label by a fixed list, or remove trainer.warm_start",
        )
    # A name that is not one of a training's checkpoints, if this is killed.
    draft = os.path.join(training_dir, "carried", "draft-0")
    checkpoint, folder = settings.goes_on["checkpoint"], os.path.join(training_dir, settings.goes_on["folder"])
    chosen = settings.distribution.train.devices
    devices = chosen.count if chosen.indices else max(1, gpu_count())
    carried = carry(checkpoint, draft, earlier, today, declared, features_of(transform_graph), devices)
    fileio.makedirs(folder)
    checkpoints.adopt(draft, folder)
    fileio.rmtree(os.path.dirname(draft))
    new = ", ".join(f"{count:,} of {name}" for name, count in carried.new.items() if count)
    logger.info(f"training goes on from {checkpoint}" + (f"; new words: {new}" if new else ""), extra=STAYS)
    if carried.alike:
        alike = ", ".join(sorted(carried.alike))
        text = f"{alike}: as many rows as there are words, which have moved; rows stay, unless vocabularies names them"
        logger.info(f"trainer.warm_start: {text}", extra=STAYS)


def _sets_learning_rate(target: str) -> bool:
    """Returns whether a target is a whole model_fn or a compiled Keras model, judging by its source."""
    own = expand("trainer.model", target)
    module = find_module(own.partition(":")[0])
    return may_be_model_fn(target) or (module is not None and not is_project(module) and may_compile(own))


@contextlib.contextmanager
def _errors_without_declaration(settings: Settings) -> Iterator[None]:
    """Rewords errors for a pipeline without a declaration to correct."""
    try:
        yield
    except TfxEstimatorError as error:
        if settings.declaration is None:
            reword(error)
        raise
