"""The training that today's goes on from: of the latest blessed model of an earlier day."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from ml_metadata.proto import metadata_store_pb2

from tfx_estimator.components.baseline_resolver import data_of
from tfx_estimator.components.trainer.estimator import checkpoints
from tfx_estimator.pipeline.config.warm_start import WarmStart
from tfx_estimator.pipeline.folders import open_store

_DONE = (metadata_store_pb2.Execution.COMPLETE, metadata_store_pb2.Execution.CACHED)
_INPUT, _OUTPUT = metadata_store_pb2.Event.INPUT, metadata_store_pb2.Event.OUTPUT


@dataclass(frozen=True)
class BlessedTraining:
    """A training whose model was blessed.

    Args:
        weights: The checkpoint of the exported model: the best one, or the last.
        folder: Of the checkpoints, in the training's folder; TFX's examples have a subfolder.
        transform_graph: The graph whose vocabularies it was trained with.
        day: The newest day that it was trained on, as TFX numbers it.
        custom_config: What Transform made the graph with.
    """

    weights: WarmStart
    folder: str
    transform_graph: str
    day: int
    custom_config: dict[str, Any]

    @property
    def goes_on(self) -> dict[str, str]:
        """The entries of `Settings.goes_on`."""
        return {"checkpoint": self.weights.source, "folder": self.folder, "transform_graph": self.transform_graph}


def find_blessed(database: str, name: str, table: Mapping[str, Any], before: int) -> Optional[BlessedTraining]:
    """Finds the latest one among the runs of a pipeline.

    Args:
        database: That of ML Metadata; there may be none yet.
        name: The pipeline's name.
        table: The fields of the table's `Task`: a model of other classes has other outputs.
        before: The newest day of this run: a day that is run again goes on from the same training as at first.
    """
    if not os.path.exists(database):
        return None
    store = open_store(database)
    context = store.get_context_by_type_and_name("node", f"{name}.Evaluator")
    executions = store.get_executions_by_context(context.id) if context else []
    for evaluated in sorted((each.id for each in executions if each.last_known_state in _DONE), reverse=True):
        found = _artifacts(store, evaluated)
        if not any(each.custom_properties["blessed"].int_value for each in found.get((_OUTPUT, "blessing"), ())):
            continue
        (model,) = found[_INPUT, "model"]
        day = max(each.custom_properties["span"].int_value for each in found[_INPUT, "examples"])
        if day >= before or data_of(model.custom_properties) != json.loads(json.dumps([table])):
            continue
        made = _artifacts(store, _maker(store, model))
        model_run = made[_OUTPUT, "model_run"][0].uri
        best = glob.glob(os.path.join(glob.escape(model_run), "best", "best.ckpt-*.index"))
        place = best[0].removesuffix(".index") if best else checkpoints.folder_of(model_run)
        weights = WarmStart(checkpoint=place)
        (graph,) = made[_INPUT, "transform_graph"]
        # Its files may have been removed.
        if weights.source and os.path.isdir(graph.uri):
            (transform,) = store.get_executions_by_id([_maker(store, graph)])
            config = json.loads(transform.custom_properties["custom_config"].string_value)
            folder = os.path.relpath(checkpoints.folder_of(model_run), model_run)
            return BlessedTraining(weights, folder, graph.uri, day, config)
    return None


def _maker(store: Any, artifact: Any) -> int:
    """Returns the execution that made an artifact; others took it from the cache."""
    events = store.get_events_by_artifact_ids([artifact.id])
    return int(min(each.execution_id for each in events if each.type == _OUTPUT))


def _artifacts(store: Any, execution: int) -> dict[tuple[int, str], list[Any]]:
    """Returns the artifacts of an execution, by direction and name."""
    events = store.get_events_by_execution_ids([execution])
    artifacts = {each.id: each for each in store.get_artifacts_by_id([event.artifact_id for event in events])}
    found: dict[tuple[int, str], list[Any]] = {}
    for event in events:
        found.setdefault((event.type, event.path.steps[0].key), []).append(artifacts[event.artifact_id])
    return found
