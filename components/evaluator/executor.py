"""The executor of Evaluator: looks at the outputs of candidate and baseline, then evaluates as TFX does."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow_model_analysis as tfma
from tfx import types
from tfx.components.evaluator import executor as tfx_executor
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import io_utils, path_utils, proto_utils

from tfx_estimator.components.evaluator.completion import complete
from tfx_estimator.components.served_outputs import Scores, choose_scores, read_outputs

_MODEL = standard_component_specs.MODEL_KEY
_BASELINE = standard_component_specs.BASELINE_MODEL_KEY
_EVAL_CONFIG = standard_component_specs.EVAL_CONFIG_KEY
_SCHEMA = standard_component_specs.SCHEMA_KEY


class Executor(tfx_executor.Executor):
    """Completes the `eval_config` from what the models put out."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Evaluates.

        Args:
            input_dict: As of `tfx.components.Evaluator`.
            output_dict: As there.
            exec_properties: As there.

        Raises:
            UserCodeError: No output of a model holds scores; or several may, and the `eval_config` names none.
        """
        text = exec_properties.get(_EVAL_CONFIG)
        if text and input_dict.get(_MODEL):
            config = proto_utils.json_to_proto(text, tfma.EvalConfig())
            # More than one is somebody's own choice for each.
            if len(config.model_specs) == 1 and config.model_specs[0].signature_name == "serving_default":
                _complete(config, input_dict)
                exec_properties = {**exec_properties, _EVAL_CONFIG: proto_utils.proto_to_json(config)}
        super().Do(input_dict, output_dict, exec_properties)


def _complete(config: tfma.EvalConfig, inputs: dict[str, list[types.Artifact]]) -> None:
    spec = config.model_specs[0]
    classes = _num_classes(inputs, spec.label_key)
    declared = spec.prediction_key or None

    def scores(artifact: types.Artifact, declared: Optional[str]) -> Scores:
        model = path_utils.serving_model_path(artifact.uri, path_utils.is_old_model_artifact(artifact))
        return choose_scores(read_outputs(model, spec.signature_name), declared, classes)

    candidate = scores(artifact_utils.get_single_instance(inputs[_MODEL]), declared)
    baseline = None
    if found := inputs.get(_BASELINE):
        # Another model may call its scores otherwise.
        model = path_utils.serving_model_path(found[0].uri, path_utils.is_old_model_artifact(found[0]))
        there = {output.name for output in read_outputs(model, spec.signature_name)}
        baseline = scores(found[0], declared if declared in there else None)
    complete(config, candidate, baseline)


def _num_classes(inputs: dict[str, list[types.Artifact]], label: str) -> Optional[int]:
    """How many there are, if the schema says so."""
    if not inputs.get(_SCHEMA):
        return None
    file = io_utils.get_only_uri_in_dir(artifact_utils.get_single_uri(inputs[_SCHEMA]))
    schema = io_utils.SchemaReader().read(file)
    domains = [feature.int_domain for feature in schema.feature if feature.name == label]
    return int(domains[0].max - domains[0].min + 1) if domains and domains[0].max > domains[0].min else None
