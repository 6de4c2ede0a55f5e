"""BaselineFinder: finds a baseline model, for services without resolvers."""

from __future__ import annotations

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import component_spec, standard_artifacts

from tfx_estimator.components.baseline_finder import executor

__all__ = ["BaselineFinder"]


class BaselineFinderSpec(component_spec.ComponentSpec):
    """Inputs and outputs of BaselineFinder; the compiler adds the pipeline's folder as a parameter."""

    PARAMETERS: dict[str, component_spec.ExecutionParameter] = {}
    INPUTS = {executor.MODEL_KEY: component_spec.ChannelParameter(type=standard_artifacts.Model)}
    OUTPUTS = {executor.FOUND_KEY: component_spec.ChannelParameter(type=standard_artifacts.String)}


class BaselineFinder(base_component.BaseComponent):
    """Finds what `BaselineStrategy` resolves: the latest other blessed model of the candidate's data.

    It is a separate step, so that Kubeflow Pipelines 2 runs it. Its output is a string, not an artifact: if the same
    model is found again, the string is equal, and the Evaluator is cached.

        finder = BaselineFinder(model=trainer.outputs["model"])
        evaluator = Evaluator(..., found_baseline=finder.outputs["found"].future()[0].value)

    Inputs: `model`. Outputs: `found`, empty if there is no such model.

    Args:
        model: Channel of the `standard_artifacts.Model` that is to be evaluated.
    """

    SPEC_CLASS = BaselineFinderSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

    def __init__(self, model: types.BaseChannel) -> None:
        super().__init__(spec=BaselineFinderSpec(model=model, found=types.Channel(type=standard_artifacts.String)))
