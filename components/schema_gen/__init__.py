"""SchemaGen: statistics of a table -> its schema: the declared one, the kept one, or one that is inferred."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Optional

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import component_spec, standard_artifacts, standard_component_specs

from tfx_estimator.components.schema_gen import executor

__all__ = ["SchemaGen"]


class TableSchemaGenSpec(component_spec.ComponentSpec):
    """Inputs, outputs and execution properties of SchemaGen."""

    PARAMETERS = {
        executor.DECLARED_KEY: component_spec.ExecutionParameter(type=str),
        executor.KEPT_KEY: component_spec.ExecutionParameter(type=str),
        executor.LABEL_KEY: component_spec.ExecutionParameter(type=str),
        executor.CLASSES_KEY: component_spec.ExecutionParameter(type=str, optional=True),
        executor.HAS_DAYS_KEY: component_spec.ExecutionParameter(type=int, optional=True),
        standard_component_specs.INFER_FEATURE_SHAPE_KEY: component_spec.ExecutionParameter(type=int),
        standard_component_specs.EXCLUDE_SPLITS_KEY: component_spec.ExecutionParameter(type=str),
    }
    INPUTS = {"statistics": component_spec.ChannelParameter(type=standard_artifacts.ExampleStatistics)}
    OUTPUTS = {"schema": component_spec.ChannelParameter(type=standard_artifacts.Schema)}


class SchemaGen(base_component.BaseComponent):
    """TFX's SchemaGen, ImportSchemaGen if a schema is declared or kept: in one node, so that caches outlast a change.

    An output is taken from the cache as long as its file, declared or kept, has the same text. ExampleValidator writes
    the kept one.

        schema_gen = SchemaGen(statistics=statistics_gen.outputs["statistics"], kept="runs/mine/schema.pbtxt")

    Inputs: `statistics`. Outputs: `schema`.

    Args:
        statistics: Channel of StatisticsGen's `statistics`, of rows with one value or none in each column; of days, one
            artifact each.
        declared: The user's own schema.
        kept: Where the inferred schema is kept.
        label: A column that takes no new words, and no empty cells.
        has_days: The rows of other days are compared with those of the day before: an inferred schema says how far a
            column may drift.
        classes: The label's, which an inferred schema keeps if they are numbers: another day may lack one.
    """

    SPEC_CLASS = TableSchemaGenSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

    def __init__(
        self,
        statistics: types.BaseChannel,
        declared: Optional[str] = None,
        kept: str = "",
        label: Optional[str] = None,
        has_days: bool = False,
        classes: Sequence[str] = (),
    ) -> None:
        spec = TableSchemaGenSpec(
            statistics=statistics,
            declared=declared or "",
            kept=kept,
            label=label or "",
            has_days=int(has_days) or None,
            classes=json.dumps(list(classes)) if classes else None,
            # Without shapes: a column may lack values on another day.
            infer_feature_shape=0,
            exclude_splits="[]",
            schema=types.Channel(type=standard_artifacts.Schema),
        )
        super().__init__(spec=spec)
