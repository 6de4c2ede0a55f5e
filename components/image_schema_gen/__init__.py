"""ImageSchemaGen: properties of an Examples artifact -> a schema."""

from __future__ import annotations

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import component_spec, standard_artifacts

from tfx_estimator.components.image_schema_gen import executor

__all__ = ["ImageSchemaGen"]


class ImageSchemaGenSpec(component_spec.ComponentSpec):
    """Inputs, outputs and execution properties of ImageSchemaGen."""

    INPUTS = {"examples": component_spec.ChannelParameter(type=standard_artifacts.Examples)}
    OUTPUTS = {"schema": component_spec.ChannelParameter(type=standard_artifacts.Schema)}
    PARAMETERS: dict = {}


class ImageSchemaGen(base_component.BaseComponent):
    """Derives the schema from the data set's own features instead of guessing it from statistics.

    `image` is required bytes, `label` a required integer in the range of the classes; so a wrong label is an anomaly
    even if the first data had it.

        schema_gen = ImageSchemaGen(examples=example_gen.outputs["examples"])

    Args:
        examples: Channel of TfdsExampleGen's `examples`.
    """

    SPEC_CLASS = ImageSchemaGenSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

    def __init__(self, examples: types.BaseChannel) -> None:
        spec = ImageSchemaGenSpec(examples=examples, schema=types.Channel(type=standard_artifacts.Schema))
        super().__init__(spec=spec)
