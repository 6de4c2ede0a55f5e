"""Builds the TFX pipeline of a declaration."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, Optional, Union

from tfx.dsl.components.common.resolver import Resolver
from tfx.dsl.input_resolution.strategies.latest_blessed_model_strategy import LatestBlessedModelStrategy
from tfx.orchestration import metadata
from tfx.orchestration.data_types import RuntimeParameter
from tfx.orchestration.pipeline import Pipeline
from tfx.proto import pusher_pb2, trainer_pb2
from tfx.types import Channel, standard_artifacts

from tfx_estimator.components import read_files
from tfx_estimator.components.baseline_finder import BaselineFinder
from tfx_estimator.components.baseline_resolver import BaselineStrategy
from tfx_estimator.components.evaluator import Evaluator
from tfx_estimator.components.evaluator.eval_config import eval_config
from tfx_estimator.components.evaluator.extractors import find_features
from tfx_estimator.components.evaluator.trial import try_metrics
from tfx_estimator.components.pusher import Pusher
from tfx_estimator.components.trainer import Trainer
from tfx_estimator.components.trainer.settings import AS_IS, RESIZED, Settings, built_in_function
from tfx_estimator.components.trainer.source import declared_code
from tfx_estimator.components.transform import Transform
from tfx_estimator.components.transform.executor import FROZEN, PLAIN, TF1
from tfx_estimator.components.transform.frozen import Frozen
from tfx_estimator.components.tuner import Tuner
from tfx_estimator.data.features import IMAGE, LABEL
from tfx_estimator.data.table_preprocessing import MOST_WORDS
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.log import STAYS, get_logger
from tfx_estimator.pipeline.blessed_training import BlessedTraining, find_blessed
from tfx_estimator.pipeline.config import Declaration, Loaded
from tfx_estimator.pipeline.config.data import TransformSection
from tfx_estimator.pipeline.config.known import expand
from tfx_estimator.pipeline.config.task import Task
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.ingestion import ingest
from tfx_estimator.pipeline.platforms.registry import BY_NAME, resolve
from tfx_estimator.pipeline.travelling import preprocessing_fn, travelling_declaration, travelling_function
from tfx_estimator.pipeline.user_source.fingerprint import fingerprint_source

logger = get_logger("run")


def create_pipeline(
    declaration: Union[Declaration, Loaded],
    folders: PipelineFolders,
    search_paths: Sequence[str] = (),
    declared: Sequence[str] = (),
    target: str = "",
) -> Pipeline:
    """Builds the TFX pipeline of a declaration.

    Args:
        declaration: A declaration, or the result of `load_declaration`, which also provides search_paths and declared,
            and makes the declared modules importable.
        folders: The pipeline's folders.
        search_paths: Folders of the declared modules, in addition to `sys.path`.
        declared: Dotted paths of the options that were declared, as opposed to defaults.
        target: One of `registry.TARGETS`; empty to run on this machine.

    Returns:
        The pipeline, for any TFX runner.

    Raises:
        DataError: The data set cannot be opened.
        DeclarationError: A declared metric cannot be measured of the data's classes.
    """
    target = resolve(target)
    rerun: tuple[str, ...] = ()
    if isinstance(declaration, Loaded):
        declaration.make_importable()
        rerun = declaration.rerun
        search_paths, declared = search_paths or declaration.search_paths, declared or declaration.declared
        declaration = declaration.declaration
    # A service keeps none: the next run may be another pod's.
    ingested = ingest(declaration, "" if target else folders.schema)
    examples, schema, task, image_shape = ingested.examples, ingested.schema, ingested.task, ingested.image_shape
    trainer = declaration.trainer
    transform = declaration.transform.of_table() if ingested.is_table else declaration.transform
    measured = eval_config(declaration.evaluator, task)
    if declaration.evaluator.metrics:
        # Otherwise a wrong metric would fail only after training.
        try_metrics(measured, task)

    custom_config = {
        **(dataclasses.asdict(task) if ingested.is_table else {"image_shape": list(image_shape)}),
        # Of gzipped files no record can be found by its offset.
        **({PLAIN: True} if ingested.is_table and not trainer.module_file else {}),
        # TFX's cache key has the function's name only.
        "source": fingerprint_source(transform.target, search_paths),
        **({"files": read_files.hashes(transform.files)} if transform.files else {}),
        **({TF1: True} if transform.tf1 else {}),
        **({"top_k": transform.top_k} if transform.top_k else {}),
    }
    blessed = None
    goes_on = trainer.warm_start is not None and trainer.warm_start.blessed is not None
    if goes_on or transform.analyzers:
        days = declaration.data.table().spans
        blessed = find_blessed(folders.metadata, declaration.name, dataclasses.asdict(task), days[-1])
    if transform.analyzers and blessed:
        custom_config[FROZEN] = _frozen(blessed, custom_config, transform, task)
        logger.info(f"the analyzers are those of day {blessed.day}", extra=STAYS)
    elif transform.analyzers:
        text = "the analyzers are made anew: no blessed model of an earlier day, with this label and classes, is here"
        logger.info(text, extra=STAYS)
    transform_graph = Transform(
        examples=examples,
        schema=schema,
        module_file=None if target else transform.module_file,
        preprocessing_fn=preprocessing_fn(transform, target),
        # The Trainer applies the graph to its batches of images: stored as floats these take four times the space.
        materialize=ingested.is_table,
        disable_statistics=True,
        custom_config=custom_config,
    )
    # No training on invalid examples.
    transform_graph.add_upstream_node(ingested.nodes[-1])

    blessed = blessed if goes_on else None
    # Other weights in the same file result in another model.
    begins = blessed.weights if blessed else trainer.warm_start
    weights = [begins.fingerprint()] if begins and begins.source else []
    # Shared by the Tuner's trials and the Trainer.
    training = {
        "examples": transform_graph.outputs["transformed_examples"] if ingested.is_table else examples,
        "transform_graph": transform_graph.outputs["transform_graph"],
        "schema": schema,
        **(travelling_function(trainer) if target else built_in_function(trainer)),
        "train_args": trainer_pb2.TrainArgs(num_steps=trainer.train_steps or 0),
        "eval_args": trainer_pb2.EvalArgs(num_steps=trainer.eval_steps or 0),
        "settings": Settings(
            start_timeout=trainer.start_timeout,
            stall_timeout=trainer.stall_timeout,
            declaration=travelling_declaration(declaration, target),
            image_shape=image_shape,
            label_names=task.names,
            declared=tuple(path for path in declared if not target or path.startswith("trainer.")),
            path="" if trainer.module_file else trainer.path,
            encoded=_encoded(declaration, image_shape),
            source="-".join([fingerprint_source(declared_code(trainer), search_paths), *weights]),
            files=read_files.hashes(trainer.files),
            rerun=rerun,
            table=dataclasses.asdict(task) if ingested.is_table else {},
            goes_on=blessed.goes_on if blessed else {},
        ),
    }
    tuner = Tuner(tune=declaration.tune, **training) if declaration.tune else None
    trained = Trainer(
        **training,
        hyperparameters=tuner.outputs["best_hyperparameters"] if tuner else None,
        training_root=_training_root(declaration, target),
    )

    baseline, found = _baseline(trained.outputs["model"], target)
    evaluator = Evaluator(
        examples=examples,
        model=trained.outputs["model"],
        eval_config=measured,
        example_splits=[declaration.data.splits.evaluated],
        schema=schema,
        # Slices by the label do not depend on the preprocessing.
        transform_graph=transform_graph.outputs["transform_graph"]
        if ingested.is_table or find_features(measured, (IMAGE, LABEL))
        else None,
        **found,
    )

    pusher = Pusher(
        model=trained.outputs["model"],
        model_blessing=evaluator.outputs["blessing"],
        push_destination=_destination(declaration.pusher.destination or folders.serving, target),
        # A module file defines its own signatures.
        examples=examples
        if declaration.serving.warm_up and not trainer.module_file and not ingested.is_table
        else None,
    )

    return Pipeline(
        pipeline_name=declaration.name,
        pipeline_root=folders.root,
        components=[
            *ingested.nodes,
            transform_graph,
            *([tuner] if tuner else []),
            trained,
            baseline,
            evaluator,
            pusher,
        ],
        enable_cache=True,
        # A service has its own metadata store.
        metadata_connection_config=None if target else metadata.sqlite_metadata_connection_config(folders.metadata),
        beam_pipeline_args=declaration.beam.pipeline_args(),
    )


def _frozen(
    blessed: BlessedTraining, custom_config: dict[str, Any], transform: TransformSection, task: Task
) -> dict[str, Any]:
    """Returns the entry of Transform's custom_config that takes over the graph of an earlier day."""
    if changed := [key for key in ("source", "files", TF1) if custom_config.get(key) != blessed.custom_config.get(key)]:
        raise DeclarationError(
            f"transform.analyzers: they are frozen, and the preprocessing has changed since: {', '.join(changed)}",
            expected=f"the one of day {blessed.day}, whose model was blessed",
            todo="run once with --set transform.analyzers=null, which analyses the columns anew",
        )
    is_by_schema = transform.target == expand("transform.preprocessing_fn", "by_schema")
    most = (transform.top_k or MOST_WORDS) if is_by_schema else 0
    return dataclasses.asdict(Frozen(blessed.transform_graph, task.label, most))


def _encoded(declaration: Declaration, image_shape: tuple[int, int, int]) -> str:
    """Returns how served image files are decoded, as at ingestion; empty unless these have 1 or 3 channels."""
    if not declaration.serving.encoded or image_shape[2] not in (1, 3) or declaration.trainer.module_file:
        return ""
    return RESIZED if declaration.data.image_size else AS_IS


def _baseline(candidate: Channel, target: str) -> tuple[Union[Resolver, BaselineFinder], dict[str, Any]]:
    """Returns the node that finds the baseline model, and the Evaluator's argument for it."""
    if not (kind := BY_NAME[target].resolver):
        finder = BaselineFinder(candidate)
        return finder, {"found_baseline": finder.outputs["found"].future()[0].value}
    # The Evaluator ignores a resolved model that is not a baseline.
    stock = kind == "stock"
    resolver = Resolver(
        strategy_class=LatestBlessedModelStrategy if stock else BaselineStrategy,
        model=Channel(type=standard_artifacts.Model),
        model_blessing=Channel(type=standard_artifacts.ModelBlessing),
        **({} if stock else {"candidate": candidate}),
    ).with_id("BaselineResolver")
    return resolver, {"baseline_model": resolver.outputs["model"]}


def _training_root(declaration: Declaration, target: str) -> Optional[str]:
    """Returns the folder, in a volume, that a step of a service shares with the pods of its training job."""
    deploy = declaration.deploy
    if not target or deploy is None or not deploy.trainjob.train or not deploy.training_root:
        return None
    return os.path.join(deploy.training_root, declaration.name)


def _destination(folder: str, target: str) -> Union[pusher_pb2.PushDestination, RuntimeParameter]:
    """Returns the destination; a runtime parameter on a service, as it differs between environments."""
    if target:
        return RuntimeParameter(name="push_destination", ptype=str, default=folder)
    return pusher_pb2.PushDestination(filesystem=pusher_pb2.PushDestination.Filesystem(base_directory=folder))
