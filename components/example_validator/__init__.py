"""ExampleValidator: statistics + schema -> anomalies, and an error if there are any."""

from __future__ import annotations

from typing import Optional

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import component_spec, standard_artifacts, standard_component_specs
from tfx.utils import json_utils

from tfx_estimator.components.example_validator import executor

__all__ = ["ExampleValidator"]


class ImageExampleValidatorSpec(standard_component_specs.ExampleValidatorSpec):
    """TFX's ExampleValidatorSpec with the length of an image, and a declared schema."""

    PARAMETERS = {
        **standard_component_specs.ExampleValidatorSpec.PARAMETERS,
        executor.IMAGE_BYTES_KEY: component_spec.ExecutionParameter(type=int, optional=True),
        executor.DECLARED_KEY: component_spec.ExecutionParameter(type=str, optional=True),
        executor.DAYS_KEY: component_spec.ExecutionParameter(type=int, optional=True),
    }


class ExampleValidator(base_component.BaseComponent):
    """TFX's ExampleValidator, which stops the pipeline on an anomaly, and checks the length of images and empty cells.

    TFX's own writes the anomalies, and the pipeline continues.

        validator = ExampleValidator(
            statistics=statistics_gen.outputs["statistics"], schema=schema_gen.outputs["schema"], image_bytes=28 * 28)

    Inputs: `statistics`, `schema`. Outputs: `anomalies`.

    Args:
        statistics: Channel of StatisticsGen's `statistics`. StatisticsGen needs the schema too: it measures lengths
            because of the schema's image domain.
        schema: Channel of ImageSchemaGen's `schema`, or SchemaGen's.
        image_bytes: Length of every image: height * width * channels; None for a table.
        declared: The user's own schema, for messages.
        days: Of statistics of days, how many are checked, up to the newest one; each is compared with the day before.
            None checks the only ones.
    """

    SPEC_CLASS = ImageExampleValidatorSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

    def __init__(
        self,
        statistics: types.BaseChannel,
        schema: types.BaseChannel,
        image_bytes: Optional[int] = None,
        declared: Optional[str] = None,
        days: Optional[int] = None,
    ) -> None:
        spec = ImageExampleValidatorSpec(
            statistics=statistics,
            schema=schema,
            exclude_splits=json_utils.dumps([]),
            anomalies=types.Channel(type=standard_artifacts.ExampleAnomalies),
            image_bytes=image_bytes,
            declared=declared,
            days=days,
        )
        super().__init__(spec=spec)
