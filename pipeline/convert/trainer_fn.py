"""The training of a canned Estimator by a trainer_fn, in a run of this project or in another TFX pipeline."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import Any, Optional

from tfx.components.trainer.executor import GenericExecutor
from tfx.types import standard_artifacts, standard_component_specs
from tfx.utils import io_utils, path_utils

from tfx_estimator.components.execution import Artifacts
from tfx_estimator.components.trainer.settings import ESTIMATOR
from tfx_estimator.components.trainer.task.paths import name_of
from tfx_estimator.components.trainer.task.user_code import function_of
from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator
from tfx_estimator.model_fn.bridge.proof import Proof
from tfx_estimator.pipeline.base.errors import PipelineError, UserCodeError
from tfx_estimator.pipeline.convert import run_fn, source
from tfx_estimator.pipeline.folders import METADATA, open_store
from tfx_estimator.pipeline.report.source import find_runs

_NODE, _TRAINER = "node", ".Trainer"


@dataclass(frozen=True)
class Training:
    """A training by a trainer_fn."""

    name: str
    checkpoint: str
    step: int
    properties: dict[str, Any]
    inputs: Artifacts


def find(named: str) -> Optional[Training]:
    """Finds the last training by a trainer_fn, of a run or an ML Metadata database; None if a network was trained."""
    if database := _own_database(named):
        name, (properties, inputs, outputs) = _own_training(database)
        folder = outputs.get(standard_component_specs.MODEL_RUN_KEY, "")
    else:
        run = find_runs([named])[0]
        properties, inputs, outputs = source.last_training(run)
        name, folder = run.name, ""
    settings = source.settings_of(properties)
    if settings.built_in is not None:
        return None
    if (path := name_of(properties, settings)) != ESTIMATOR:
        raise UserCodeError(
            f"the training of {name} was that of a {path}",
            expected="a trainer_fn, which returns an Estimator",
            todo="name the run of one",
        )
    folder = folder or source.folder_of_training(run, outputs.get(standard_component_specs.MODEL_RUN_KEY, ""))
    return Training(name, *source.last_checkpoint(folder), properties, inputs)


def convert(training: Training, output: str, to: str = "keras2") -> tuple[Proof, tuple[str, str]]:
    """Converts a trainer_fn's Estimator, and writes a run_fn in its place; returns its name or why there is none."""
    bring_back_estimator()
    source.show_tensorflow_1(source.settings_of(training.properties))
    from tfx_estimator.model_fn.bridge.canned import conversion, reading
    from tfx_estimator.model_fn.bridge.canned.refusal import refused

    with tempfile.TemporaryDirectory(prefix="tfx-estimator-") as scratch:
        made = _call(training, scratch)
        estimator, evaluation = made["estimator"], made["eval_spec"]
        if not reading.is_canned(estimator):
            raise refused(
                f"the Estimator that the trainer_fn of {training.name} returns, which is not a canned one,",
                "keep its training, by --estimator FILE:trainer_fn; or convert the run of a canned one, or of a "
                "network of trainer.model",
            )
        train = made["train_spec"].input_fn
        function, written = run_fn.TrainerFn.of(training.properties), list[tuple[str, str]]()

        def also(draft: str, canned: reading.Canned) -> None:
            given = (canned, estimator, train, evaluation.exporters, to == "keras3")
            written.append(run_fn.write(draft, os.path.abspath(output), function, *given))

        given = (estimator, training.checkpoint, train, evaluation.input_fn, output, evaluation.steps)
        return conversion.convert(*given, to == "keras3", also), written[0]


def _call(training: Training, scratch: str) -> dict[str, Any]:
    """Calls the trainer_fn like the Trainer, with another folder for its Estimator."""
    outputs = {
        standard_component_specs.MODEL_KEY: [standard_artifacts.Model()],
        standard_component_specs.MODEL_RUN_KEY: [standard_artifacts.ModelRun()],
    }
    for (artifact,) in outputs.values():
        artifact.uri = scratch
    fn_args = GenericExecutor()._GetFnArgs(training.inputs, outputs, training.properties)
    fn_args.serving_model_dir = path_utils.serving_model_dir(scratch)
    fn_args.eval_model_dir = path_utils.eval_model_dir(scratch)
    from tensorflow_metadata.proto.v0 import schema_pb2

    schema = io_utils.parse_pbtxt_file(fn_args.schema_path, schema_pb2.Schema()) if fn_args.schema_path else None
    return dict(function_of(training.properties, "trainer_fn")(fn_args, schema))


def _own_database(named: str) -> str:
    """Returns the ML Metadata database of another TFX pipeline; empty for a run's folder."""
    path = os.path.abspath(os.path.expanduser(named))
    if os.path.isfile(path):
        return path
    inside = os.path.join(path, METADATA)
    return inside if os.path.isfile(inside) and not os.path.isdir(os.path.join(path, "logs")) else ""


def _own_training(database: str) -> tuple[str, tuple[dict[str, Any], Artifacts, dict[str, str]]]:
    """Returns the pipeline's name, and `source.describe` of its last finished training."""
    store = open_store(database)
    nodes = {each.id: each.name for each in store.get_contexts_by_type(_NODE) if each.name.endswith(_TRAINER)}
    found = [(each, name) for number, name in nodes.items() for each in store.get_executions_by_context(number)]
    # A later execution may have failed, or been cached: only those with outputs count.
    key = standard_component_specs.MODEL_RUN_KEY
    finished = [pair for pair in found if key in source.describe(store, pair[0], {})[2]]
    if not finished:
        raise PipelineError(
            f"{database} has no finished training",
            expected="a pipeline whose Trainer has written its model_run",
            todo="run it to the end; or name the folder of another",
        )
    last, name = max(finished, key=lambda pair: pair[0].id)
    return name.removesuffix(_TRAINER), source.describe(store, last, {})
