"""TFX's Evaluator, extended to find the scores among a model's outputs."""

from __future__ import annotations

from typing import Any, Optional

from tfx.components.evaluator import component as tfx_evaluator
from tfx.dsl.components.base import executor_spec
from tfx.types import BaseChannel, standard_artifacts
from tfx.types.component_spec import ChannelParameter, ExecutionParameter
from tfx.types.standard_component_specs import EvaluatorSpec

from tfx_estimator.components.baseline_finder.records import FOUND_BASELINE_KEY
from tfx_estimator.components.evaluator.executor import TRANSFORM_GRAPH, Executor

__all__ = ["Evaluator"]


class ExtendedEvaluatorSpec(EvaluatorSpec):
    """TFX's EvaluatorSpec with a transform graph, and a baseline as a parameter."""

    PARAMETERS = {**EvaluatorSpec.PARAMETERS, FOUND_BASELINE_KEY: ExecutionParameter(type=str, optional=True)}
    INPUTS = {**EvaluatorSpec.INPUTS, TRANSFORM_GRAPH: ChannelParameter(type=standard_artifacts.TransformGraph)}


class Evaluator(tfx_evaluator.Evaluator):
    """`tfx.components.Evaluator`, whose `eval_config` need not name the output with the scores.

    A model spec without a `prediction_key` gets the one that fits, and sparse categorical metrics are configured for
    its content: probabilities, logits, or the probability of the second of two classes.

    Slices may also use features that a preprocessing_fn returns; and label and weight, if the model spec names
    `transform_features` among its `preprocessing_function_names`. All else is as in TFX. The choice follows from the
    model, so the cache key does not change.

    Args:
        *args: As of `tfx.components.Evaluator`.
        transform_graph: Channel of Transform's output; required for features that the examples lack.
        found_baseline: Placeholder of a BaselineFinder's output, in place of the channel `baseline_model`. A step of
            Kubeflow Pipelines 2 reads it.
        **kwargs: As of `tfx.components.Evaluator`.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)

    def __init__(
        self,
        *args: Any,
        transform_graph: Optional[BaseChannel] = None,
        found_baseline: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if transform_graph is not None or found_baseline is not None:
            # TFX's constructor makes a spec of its own class.
            self.spec.__class__ = ExtendedEvaluatorSpec
        if transform_graph is not None:
            self.spec.inputs[TRANSFORM_GRAPH] = transform_graph
        if found_baseline is not None:
            self.spec.exec_properties[FOUND_BASELINE_KEY] = found_baseline
