"""The executor of Evaluator: inspects the outputs of candidate and baseline, then evaluates as TFX does."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any, Optional

import tensorflow_model_analysis as tfma
import tensorflow_transform as tft
from tfx import types
from tfx.components.evaluator import executor as tfx_executor
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import io_utils, path_utils, proto_utils

from tfx_estimator.components.baseline_resolver import DROPPED, ITSELF, why_no_baseline
from tfx_estimator.components.evaluator.completion import Extras, complete, extracting, reads_probabilities
from tfx_estimator.components.evaluator.extractors import FUNCTION, TRANSFORM_FEATURES, check_features
from tfx_estimator.components.evaluator.skill import kind_of
from tfx_estimator.components.execution import Artifacts
from tfx_estimator.components.inventory import checks_inputs
from tfx_estimator.components.served_outputs import Scores, choose_scores, read_outputs
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.config.task import BINARY, REGRESSION

logger = get_logger("evaluator")

_MODEL = standard_component_specs.MODEL_KEY
_BASELINE = standard_component_specs.BASELINE_MODEL_KEY
_EVAL_CONFIG = standard_component_specs.EVAL_CONFIG_KEY
_SCHEMA = standard_component_specs.SCHEMA_KEY
TRANSFORM_GRAPH = standard_component_specs.TRANSFORM_GRAPH_KEY
# TFX calls the function of this name.
_EXTRACTORS = "custom_extractors"


class Executor(tfx_executor.Executor):
    """Completes the `eval_config` from the models' outputs."""

    @checks_inputs
    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
        """Evaluates, as `tfx.components.Evaluator` does."""
        input_dict, dropped = _without_unfit_baseline(input_dict)
        for evaluation in output_dict.get(standard_component_specs.EVALUATION_KEY, ()) if dropped else ():
            evaluation.set_string_custom_property(DROPPED, dropped)
        text, extras = exec_properties.get(_EVAL_CONFIG), Extras()
        if text and input_dict.get(_MODEL):
            config = proto_utils.json_to_proto(text, tfma.EvalConfig())
            # Several model specs are the user's own choice.
            if len(config.model_specs) == 1 and config.model_specs[0].signature_name == "serving_default":
                extras = _complete(config, input_dict)
                exec_properties = {**exec_properties, _EVAL_CONFIG: proto_utils.proto_to_json(config)}
        if extras:
            exec_properties[_EXTRACTORS] = FUNCTION
        with extracting(extras):
            super().Do(
                {name: found for name, found in input_dict.items() if name != TRANSFORM_GRAPH},
                output_dict,
                exec_properties,
            )


def _without_unfit_baseline(inputs: Artifacts) -> tuple[Artifacts, str]:
    """Drops a baseline that is the candidate itself, or not comparable with it; returns the reason, too.

    Some services have no custom resolvers: TFX's own finds both.
    """
    if not inputs.get(_BASELINE) or not inputs.get(_MODEL):
        return inputs, ""
    candidate = artifact_utils.get_single_instance(inputs[_MODEL])
    reasons = [why_no_baseline(model, candidate) for model in inputs[_BASELINE]]
    fit = [model for model, reason in zip(inputs[_BASELINE], reasons) if not reason]
    dropped = "; ".join(filter(None, reasons))
    if dropped:
        # ITSELF is normal in a second execution without changes.
        level = logging.INFO if dropped == ITSELF else logging.WARNING
        logger.log(level, f"the model is not compared with another one: {dropped}")
    rest = {name: found for name, found in inputs.items() if name != _BASELINE}
    return {**rest, **({_BASELINE: fit} if fit else {})}, "" if fit else dropped


def _complete(config: tfma.EvalConfig, inputs: Artifacts) -> Extras:
    """Completes a configuration, in place; returns the additional extracts."""
    spec, kind = config.model_specs[0], kind_of(config)
    features = _features(config, inputs)
    classes = {BINARY: 2, REGRESSION: 1}.get(kind or "") or _num_classes(inputs, spec.label_key)
    declared = spec.prediction_key or None

    def scores(artifact: types.Artifact, declared: Optional[str]) -> Scores:
        model = path_utils.serving_model_path(artifact.uri, path_utils.is_old_model_artifact(artifact))
        return choose_scores(read_outputs(model, spec.signature_name), declared, classes)

    candidate = scores(artifact_utils.get_single_instance(inputs[_MODEL]), declared)
    baseline = None
    if found := inputs.get(_BASELINE):
        # The baseline may have another name for its scores.
        model = path_utils.serving_model_path(found[0].uri, path_utils.is_old_model_artifact(found[0]))
        there = {output.name for output in read_outputs(model, spec.signature_name)}
        baseline = scores(found[0], declared if declared in there else None)
    converted: dict[str, Scores] = {}
    names = {"": candidate} if baseline is None else {tfma.CANDIDATE_KEY: candidate, tfma.BASELINE_KEY: baseline}
    if kind == BINARY:
        # Metrics of two classes would pool the scores of both.
        converted = names
        candidate = Scores(candidate.key, of_two=True)
        baseline = baseline and Scores(baseline.key, of_two=True)
    elif kind != REGRESSION and reads_probabilities(config):
        # Thresholds of other metrics are between 0 and 1.
        converted = {name: each for name, each in names.items() if each.from_logits}
        candidate = dataclasses.replace(candidate, from_logits=False)
        baseline = baseline and dataclasses.replace(baseline, from_logits=False)
    complete(config, candidate, baseline)
    graph = artifact_utils.get_single_uri(inputs[TRANSFORM_GRAPH]) if features else None
    return Extras(graph, features, converted, kind == BINARY)


def _features(config: tfma.EvalConfig, inputs: Artifacts) -> tuple[str, ...]:
    """Returns the features that the transform graph must return: of slices and means, label and weight."""
    if not inputs.get(TRANSFORM_GRAPH) or not inputs.get(_SCHEMA):
        return ()
    raw = [feature.name for feature in _schema(inputs).feature]
    output = tft.TFTransformOutput(artifact_utils.get_single_uri(inputs[TRANSFORM_GRAPH]))
    features = check_features(config, raw, output.transformed_feature_spec())
    # TFMA would call this attribute of the model, which an Estimator's export has not.
    if TRANSFORM_FEATURES in (names := config.model_specs[0].preprocessing_function_names):
        names.remove(TRANSFORM_FEATURES)
    return features


def _num_classes(inputs: Artifacts, label: str) -> Optional[int]:
    """Returns the number of classes in the schema, if it has one."""
    if not inputs.get(_SCHEMA):
        return None
    domains = [feature.int_domain for feature in _schema(inputs).feature if feature.name == label]
    return int(domains[0].max - domains[0].min + 1) if domains and domains[0].max > domains[0].min else None


def _schema(inputs: Artifacts) -> Any:
    file = io_utils.get_only_uri_in_dir(artifact_utils.get_single_uri(inputs[_SCHEMA]))
    return io_utils.SchemaReader().read(file)
