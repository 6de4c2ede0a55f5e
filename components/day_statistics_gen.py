"""DayStatisticsGen: the examples of a day -> statistics that know their day."""

from __future__ import annotations

from typing import Any

from tfx.components.statistics_gen import component, executor
from tfx.dsl.components.base import executor_spec
from tfx.types import artifact_utils, standard_component_specs

from tfx_estimator.components.execution import Artifacts

__all__ = ["DayStatisticsGen"]

_SPAN = "span"


class Executor(executor.Executor):
    """TFX's executor, which looks for the day where ExampleGen does not write it."""

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
        """Writes the statistics of each split, and the artifact's day."""
        super().Do(input_dict, output_dict, exec_properties)
        examples = artifact_utils.get_single_instance(input_dict[standard_component_specs.EXAMPLES_KEY])
        statistics = artifact_utils.get_single_instance(output_dict[standard_component_specs.STATISTICS_KEY])
        statistics.span = examples.get_int_custom_property(_SPAN)


class DayStatisticsGen(component.StatisticsGen):
    """TFX's StatisticsGen, whose statistics have the span of their examples.

        statistics_gen = DayStatisticsGen(examples=example_gen.outputs["examples"]).with_id("StatisticsGen.7")

    Inputs, outputs and arguments are those of `tfx.components.StatisticsGen`.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
