"""The task of an estimate: builds one training step with the declared batch, without running it."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import os
from collections.abc import Mapping
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.components.records import read_records
from tfx_estimator.components.trainer.declared_input import declared_input, table_params
from tfx_estimator.components.trainer.dry_run.inputs import make_inputs, make_table_inputs
from tfx_estimator.components.trainer.dry_run.trial import make_job, stand_ins
from tfx_estimator.components.trainer.job import TaskContext
from tfx_estimator.components.trainer.protocol.events import Event, kilobytes
from tfx_estimator.components.trainer.settings import ESTIMATOR, Settings
from tfx_estimator.components.trainer.task.user_code import find_function, is_model_fn, make_fn_args
from tfx_estimator.data.features import IMAGE, LABEL
from tfx_estimator.data.sources.source import ImageSource, SourceInfo
from tfx_estimator.pipeline.base.errors import DataError
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.config.known import SHORT_NAMES
from tfx_estimator.pipeline.config.runtime import parts_at_once
from tfx_estimator.pipeline.config.table import read_declared
from tfx_estimator.pipeline.config.table import task as declared_task
from tfx_estimator.pipeline.config.task import REGRESSION, Task
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.user_source import loader

# Made-up images for the user's preprocessing_fn.
_EXAMPLES = 16
# Rows of a table that are preprocessed, for the sizes of vocabularies.
_ROWS = 5_000
# A record's features other than pixels, and its overhead in memory.
_RECORD_BYTES = 64


@dataclasses.dataclass(frozen=True)
class Held:
    """The bytes of Costs on one of the devices that a network is divided among."""

    weight_bytes: int
    trained_bytes: int
    slot_bytes: int
    peak_bytes: int


@dataclasses.dataclass(frozen=True)
class Costs:
    """The cost of one replica's part of a step.

    Args:
        parameters: Number of trainable parameters.
        weight_bytes: All variables of the model, trainable or not.
        trained_bytes: Trainable variables; their gradients are as large.
        slot_bytes: The optimizer's variables.
        batch: Examples of the replica.
        peak_bytes: Peak memory of a step without the variables: its batch, activations, gradients.
        forward_flops: Floating-point operations of the batch's loss.
        step_flops: Floating-point operations of the whole step.
        example_bytes: One example as the model's input.
        resident_bytes: Training files that are kept in memory; None if the number of examples is unknown.
        runtime_bytes: The process before it trains: interpreter, TensorFlow, TFX.
        unseen: Kinds of operations whose costs are unknown.
        table_bytes: Embedding tables among `trained_bytes`: their gradients are rows, which are never compressed.
        devices: The part of each device that the network is divided among, in the order of the declaration.
        sent_bytes: Transfers between these devices in a step.
        first_rows: The rows of a table whose words and categories are counted; 0 if all are.
    """

    parameters: int
    weight_bytes: int
    trained_bytes: int
    slot_bytes: int
    batch: int
    peak_bytes: int
    forward_flops: int
    step_flops: int
    example_bytes: int
    resident_bytes: Optional[int]
    runtime_bytes: int
    unseen: tuple[str, ...] = ()
    table_bytes: int = 0
    devices: tuple[Held, ...] = ()
    sent_bytes: int = 0
    first_rows: int = 0


def run(context: TaskContext) -> None:
    """Builds the step, and reports its cost."""
    declaration = Declaration.parse_obj(context.settings.declaration)

    def begin(what: str) -> None:
        context.progress.write(Event.TRYING, text=what)

    begin("opening the data set")
    from tfx_estimator.data.sources import open_source

    source = None if declaration.data.is_table else open_source(declaration.data)
    begin("the import of TensorFlow and TFX")
    # All that training imports counts as a training's memory.
    from tfx_estimator.components.trainer.estimator import path as _estimator  # noqa: F401
    from tfx_estimator.components.trainer.keras import path as _keras  # noqa: F401
    from tfx_estimator.model_fn.parallel.strategies import configure_devices

    configure_devices(cpus=_on_cpus(declaration.trainer).logical_cpus)

    begin(f"{declaration.transform.preprocessing_fn or declaration.transform.module_file or 'the preprocessing'}")
    costs = _of_images(context, declaration, source) if source else _of_table(context, declaration)
    # `default` converts numpy's numbers.
    found = json.loads(json.dumps(dataclasses.asdict(costs), default=int))
    context.progress.write(Event.TRIED, found=found)


def _of_images(context: TaskContext, declaration: Declaration, source: ImageSource) -> Costs:
    spec = _spec(declaration, source.info, os.path.join(context.job.training_dir, "inputs"))
    context.progress.write(Event.TRYING, text=_step_of(declaration))
    settings = dataclasses.replace(
        context.settings, image_shape=source.info.image_shape, label_names=source.info.label_names, declared=()
    )
    return dataclasses.replace(find_costs(settings, spec), resident_bytes=_resident(declaration, source))


def _of_table(context: TaskContext, declaration: Declaration) -> Costs:
    """Returns the costs with a table's first rows, which tell the number of its words and categories."""
    task, transform = declared_task(declaration), declaration.transform.of_table()
    table = dataclasses.asdict(task)
    if transform.module_file:
        loader.install([os.path.dirname(transform.module_file)])
    folder = os.path.join(context.job.training_dir, "inputs")
    inputs = make_table_inputs(folder, declaration.data, transform, _ROWS, table)
    context.progress.write(Event.TRYING, text=_step_of(declaration))
    settings = dataclasses.replace(context.settings, label_names=task.names, declared=(), table=table)
    section = declaration.trainer
    given = make_fn_args(make_job(context.job, settings.with_trainer(**stand_ins(section, 0)), inputs))
    declared = declared_input(given, section, lambda: 0, task)
    costs = find_costs(settings, declared.transformed_spec, task, table_params(declared, task))
    reading, sizes = (
        read_declared(declaration.data),
        [len(each) for each in read_records(declared.reader.train_files[0])],
    )
    resident = None
    if reading.is_whole:
        shares = declaration.data.table().buckets
        rows = reading.rows * shares["train"] / sum(shares.values()) if shares else reading.rows_by_split["train"]
        resident = _kept(round(rows), sum(sizes) / len(sizes), section)
    first = len(sizes) if len(sizes) < reading.rows or not reading.is_whole else 0
    return dataclasses.replace(costs, resident_bytes=resident, first_rows=first)


def _step_of(declaration: Declaration) -> str:
    return f"a step of {declaration.trainer.model}, which is built and not run"


def _of_batch(feature: Any, batch: int) -> Any:
    """Returns the spec of a batch's transformed feature; one of variable length is not counted."""
    if isinstance(feature, tf.io.FixedLenFeature):
        return tf.TensorSpec([batch, *feature.shape], feature.dtype)
    kind = tf.SparseTensorSpec if isinstance(feature, tf.io.VarLenFeature) else tf.RaggedTensorSpec
    return kind([batch, None], feature.dtype)


def find_costs(
    settings: Settings, spec: Mapping[str, Any], task: Optional[Task] = None, of_table: Optional[dict[str, Any]] = None
) -> Costs:
    """Builds one replica's step.

    Args:
        spec: The transformed features, label and weight included.
        task: Of a table.
        of_table: Its `table_params`.
    """
    from tfx_estimator.components.trainer.dry_run import graph_costs
    from tfx_estimator.components.trainer.estimator.trainer_fn import params_of
    from tfx_estimator.components.trainer.keras.model import ModelMaker

    assert settings.trainer is not None
    settings = settings.with_trainer(**stand_ins(settings.trainer, len(settings.label_names)))
    assert settings.trainer is not None
    # Without XLA, whose functions are opaque: the costs are the same. Parallel parts need the memory of the whole
    # batch, and gradients of their own.
    parts = parts_at_once(settings.trainer)
    section = _on_cpus(settings.trainer).copy(update={"xla": False, "parallel_parts": 1})
    # One replica's: all are built alike.
    batch = max(section.global_batch_size // section.distribution.train.replicas, 1)
    label, weight = (task.label, task.weight) if task else (LABEL, "")
    features = {name: _of_batch(each, batch) for name, each in spec.items() if name != label}
    labels = tf.TensorSpec([batch], tf.float32 if task and task.kind == REGRESSION else tf.int64)
    if section.path == ESTIMATOR and is_model_fn(function := find_function(section.model or "")):
        built = _model_fn_step(function, params_of(section, settings, of_table), features, labels)
    else:
        # The step of the built-in model_fn has the same operations.
        inputs = {name: each for name, each in spec.items() if name not in (label, weight)}
        params = of_table or {"num_classes": len(settings.label_names)}
        built = _keras_step(ModelMaker.of(section, inputs, params), features, labels)
    trained, others, slots, loss, outputs = built
    forward, step = graph_costs.needed([loss], after=False), graph_costs.needed(outputs)
    # The variables of a v1 graph take no memory yet.
    allocated = _bytes([*trained, *others, *slots]) if loss.graph.building_function else 0
    devices, sent = _divided(settings.trainer, built, step)
    return Costs(
        parameters=sum(each.shape.num_elements() or 0 for each in trained),
        weight_bytes=_bytes([*trained, *others]),
        trained_bytes=_bytes(trained),
        slot_bytes=_bytes(slots),
        batch=batch,
        peak_bytes=graph_costs.peak_bytes(step) + (parts - 1) * _bytes(trained),
        forward_flops=graph_costs.dearest_flops(forward),
        step_flops=graph_costs.dearest_flops(step),
        example_bytes=sum((each.shape.num_elements() or 0) * each.dtype.size // batch for each in features.values()),
        resident_bytes=None,
        runtime_bytes=max((kilobytes("/proc/self/status", "VmRSS") << 10) - allocated, 0),
        unseen=tuple(graph_costs.opaque(step)),
        table_bytes=_bytes(_tables(settings.trainer, trained, loss.graph)),
        devices=devices,
        sent_bytes=sent,
    )


def _on_cpus(section: TrainerSection) -> TrainerSection:
    """Replaces the devices of a divided network by logical CPUs: nothing runs on them."""
    model, pipeline = section.model_parallel, section.pipeline_parallel
    if model is not None:
        model = model.copy(update={"devices": tuple(f"cpu:{place}" for place in range(len(model.devices)))})
    if pipeline is not None:
        pipeline = pipeline.copy(update={"devices": tuple(f"cpu:{place}" for place in range(pipeline.stage_count))})
    return section.copy(update={"model_parallel": model, "pipeline_parallel": pipeline})


def _divided(section: TrainerSection, built: tuple[Any, ...], step: Any) -> tuple[tuple[Held, ...], int]:
    """Returns the memory on each device of a divided network, and the bytes sent between them."""
    from tfx_estimator.components.trainer.dry_run import graph_costs

    trained, others, slots, loss, _ = built
    if not section.is_divided:
        return (), 0
    variables = {inner.ref(): outer.device for outer, inner in loss.graph.captures}
    places = graph_costs.devices_of(step, variables)
    held = []
    for place in range(_on_cpus(section).logical_cpus):
        on_it = [
            [each for each in group if graph_costs.number_of(each.device) == place]
            for group in (trained, others, slots)
        ]
        peak = graph_costs.peak_bytes(step, {op for op, where in places.items() if where == place}.__contains__)
        held.append(Held(_bytes(on_it[0]) + _bytes(on_it[1]), _bytes(on_it[0]), _bytes(on_it[2]), peak))
    return tuple(held), graph_costs.sent_bytes(step, places)


def _tables(section: TrainerSection, trained: Any, graph: Any) -> list[Any]:
    """Returns the variables whose gradients are IndexedSlices when the replicas sum them."""
    # Summing parts of a batch, and unscaling a scaled loss, make these gradients dense.
    in_parts = section.gradient_accumulation > 1 or parts_at_once(section) > 1
    if in_parts or section.precision == "mixed_float16" or not graph.building_function:
        return []
    gathered = [op.inputs[0] for op in graph.get_operations() if op.type == "ResourceGather"]
    handles = [outer for outer, inner in graph.captures if any(inner is each for each in gathered)]
    return [each for each in trained if any(each.handle is handle for handle in handles)]


def _keras_step(maker: Any, features: Any, labels: Any) -> tuple[Any, ...]:
    """Returns the trainable, the other and the optimizer's variables; the loss, and all outputs of a step."""
    from tfx_estimator.components.trainer.estimator.first_call import refuse_compiled
    from tfx_estimator.model_fn.step.compiled_classifier import CompiledClassifier

    model = maker.make_compiled(2)
    if maker.section.path == ESTIMATOR and isinstance(model, CompiledClassifier):
        refuse_compiled(model.own)
    function = tf.function(model.train_step).get_concrete_function((features, labels))
    graph = function.graph
    variables = model.optimizer.variables
    slots = list(variables() if callable(variables) else variables)
    loss = graph.structured_outputs["loss"]
    outputs = [*graph.outputs, *graph.control_outputs]
    return model.trainable_variables, model.non_trainable_variables, slots, loss, outputs


def _model_fn_step(function: Any, params: Mapping[str, Any], features: Any, labels: Any) -> tuple[Any, ...]:
    """Returns the same as `_keras_step`, for a model_fn."""
    with tf.Graph().as_default() as graph:
        step = tf.compat.v1.train.get_or_create_global_step()
        inputs = {name: tf.compat.v1.placeholder(each.dtype, each.shape) for name, each in features.items()}
        arguments: dict[str, Any] = {
            "labels": tf.compat.v1.placeholder(labels.dtype, labels.shape),
            "mode": ModeKeys.TRAIN,
            "params": params,
            "config": tf.estimator.RunConfig(),
        }
        accepted = inspect.signature(function).parameters
        spec = function(inputs, **{name: value for name, value in arguments.items() if name in accepted})
        trained = tf.compat.v1.trainable_variables()
        names = {each.name.rpartition(":")[0] for each in trained}
        rest = [each for each in tf.compat.v1.global_variables() if each.name not in {v.name for v in trained}]
        rest = [each for each in rest if each is not step]
        # A slot is named after its variable.
        slots = [each for each in rest if any(f"{name}/" in f"{each.name}/" for name in names)]
        others = [each for each in rest if not any(each is slot for slot in slots)]
        hooked = graph.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
        return trained, others, slots, spec.loss, [spec.loss, spec.train_op, *hooked]


def _bytes(variables: Any) -> int:
    return sum((each.shape.num_elements() or 0) * each.dtype.size for each in variables)


def _spec(declaration: Declaration, info: SourceInfo, folder: str) -> Mapping[str, Any]:
    """Returns the spec of the transformed features; a user's preprocessing_fn is run on a few made-up images."""
    transform = declaration.transform
    if transform.target in SHORT_NAMES["transform.preprocessing_fn"].values():
        image = tf.io.FixedLenFeature(list(info.image_shape), tf.float32)
        return {IMAGE: image, LABEL: tf.io.FixedLenFeature([], tf.int64)}
    import tensorflow_transform as tft

    if transform.module_file:
        loader.install([os.path.dirname(transform.module_file)])
    artifacts = make_inputs(folder, info, transform, _EXAMPLES)
    return tft.TFTransformOutput(artifacts["transform_graph"][0].uri).transformed_feature_spec()


def _resident(declaration: Declaration, source: ImageSource) -> Optional[int]:
    """Returns the bytes of the training files that stay in memory."""
    with contextlib.suppress(DataError):
        if source.is_prepared:
            count = sum(map(len, source.resolve(declaration.data.splits.declared()["train"])))
            return _kept(count, source.info.image_bytes, declaration.trainer)
    return None


def _kept(count: int, example: float, section: TrainerSection) -> int:
    """Returns the bytes of so many examples, if all are kept in memory; else 0."""
    size = round(count * (example + _RECORD_BYTES))
    return size if size <= section.resident_megabytes << 20 else 0
