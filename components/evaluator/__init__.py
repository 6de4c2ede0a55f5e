"""TFX's Evaluator, which finds the scores among the outputs of any model."""

from __future__ import annotations

from typing import Any, Optional

from tfx.components.evaluator import component as tfx_evaluator
from tfx.dsl.components.base import executor_spec
from tfx.types import BaseChannel, standard_artifacts
from tfx.types.component_spec import ChannelParameter
from tfx.types.standard_component_specs import EvaluatorSpec

from tfx_estimator.components.evaluator.executor import TRANSFORM_GRAPH, Executor

__all__ = ["Evaluator"]


class SlicingEvaluatorSpec(EvaluatorSpec):
    """That of `tfx.components.Evaluator`, which has no transform graph."""

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
        **kwargs: As there.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)

    def __init__(self, *args: Any, transform_graph: Optional[BaseChannel] = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if transform_graph is not None:
            # TFX makes the specification itself, of its own class.
            self.spec.__class__ = SlicingEvaluatorSpec
            self.spec.inputs[TRANSFORM_GRAPH] = transform_graph
