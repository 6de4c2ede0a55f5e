"""TFX's Evaluator, which finds the scores among the outputs of any model."""

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


class FurtherEvaluatorSpec(EvaluatorSpec):
    """That of `tfx.components.Evaluator`, which has no transform graph, and a baseline as a channel only."""

    PARAMETERS = {**EvaluatorSpec.PARAMETERS, FOUND_BASELINE_KEY: ExecutionParameter(type=str, optional=True)}
    INPUTS = {**EvaluatorSpec.INPUTS, TRANSFORM_GRAPH: ChannelParameter(type=standard_artifacts.TransformGraph)}


class Evaluator(tfx_evaluator.Evaluator):
    """`tfx.components.Evaluator`, whose `eval_config` need not say which output of a model holds the scores.

    A model spec without a `prediction_key` is given the one that fits, and the metrics of sparse categories are told
    what it holds: probabilities, logits, or the probability of the second of two classes.

    Slices may be by what a preprocessing_fn returns, too. Else arguments and outputs are those of TFX's. What is chosen
    follows from the model, so that the key of the cache is TFX's, too.

    Args:
        *args: As of `tfx.components.Evaluator`.
        transform_graph: Of Transform; needed for slices by features that the examples do not have.
        found_baseline: What a BaselineFinder has found, in place of a channel `baseline_model`: a placeholder of it.
            A step of Kubeflow Pipelines 2 reads it.
        **kwargs: As there.
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
            # TFX makes the specification itself, of its own class.
            self.spec.__class__ = FurtherEvaluatorSpec
        if transform_graph is not None:
            self.spec.inputs[TRANSFORM_GRAPH] = transform_graph
        if found_baseline is not None:
            self.spec.exec_properties[FOUND_BASELINE_KEY] = found_baseline
