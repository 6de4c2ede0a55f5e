"""The executor of BaselineFinder."""

from __future__ import annotations

import json
from typing import Any

from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils, standard_component_specs

from tfx_estimator.components.baseline_finder.records import latest
from tfx_estimator.components.execution import Artifacts
from tfx_estimator.components.trainer.settings import HOME_KEY
from tfx_estimator.pipeline.base.log import get_logger

MODEL_KEY = standard_component_specs.MODEL_KEY
FOUND_KEY = "found"

logger = get_logger("baseline")


class Executor(base_executor.BaseExecutor):
    """Finds a model among the records of the pipeline's folder."""

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
        """Writes the record of the model, or an empty string."""
        self._log_startup(input_dict, output_dict, exec_properties)
        home, candidate = exec_properties[HOME_KEY], artifact_utils.get_single_instance(input_dict[MODEL_KEY])
        found = latest(home, candidate)
        logger.info(f"the baseline is {found['uri']}" if found else f"{home} has no other blessed model of these data")
        text = json.dumps(found, sort_keys=True) if found else ""
        artifact_utils.get_single_instance(output_dict[FOUND_KEY]).write(text)
