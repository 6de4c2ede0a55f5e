"""The test kit runs one component, with a custom executor too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tfx.dsl.components.base.base_component import BaseComponent
from tfx.dsl.components.base.base_executor import BaseExecutor
from tfx.dsl.components.base.executor_spec import ExecutorClassSpec
from tfx.types import Channel, standard_artifacts
from tfx.types.component_spec import ChannelParameter, ComponentSpec, ExecutionParameter

from tfx_estimator import testing

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


class _Spec(ComponentSpec):
    PARAMETERS = {"factor": ExecutionParameter(type=int)}
    INPUTS = {"models": ChannelParameter(type=standard_artifacts.Model)}
    OUTPUTS = {"bytes": ChannelParameter(type=standard_artifacts.Integer)}


class _Executor(BaseExecutor):
    def Do(self, input_dict: Any, output_dict: Any, exec_properties: Any) -> None:
        if exec_properties["factor"] < 0:
            raise ValueError("the factor is negative")
        files = [each for model in input_dict["models"] for each in Path(model.uri).rglob("*") if each.is_file()]
        (made,) = output_dict["bytes"]
        made.write(exec_properties["factor"] * sum(each.stat().st_size for each in files))
        made.set_string_custom_property("read", json.dumps(sorted(each.name for each in files)))


class Measure(BaseComponent):
    """Measures the files of models."""

    SPEC_CLASS = _Spec
    EXECUTOR_SPEC = ExecutorClassSpec(_Executor)

    def __init__(self, models: Channel, factor: int) -> None:
        super().__init__(_Spec(models=models, factor=factor, bytes=Channel(type=standard_artifacts.Integer)))


def test_a_custom_executor_gets_its_inputs_and_its_outputs_are_returned(temporary_of_session: Path) -> None:
    before = set(temporary_of_session.rglob("*"))
    model = testing.artifact("Model", {"Format-Serving/a": "12345", "b": b"67"})
    ran = testing.run_component(Measure, models=model, factor=3)
    assert ran["bytes"].value == 21
    assert ran["bytes"].get_string_custom_property("read") == '["a", "b"]'
    assert ran.properties["factor"] == 3
    (root,) = {
        each.relative_to(temporary_of_session).parts[0] for each in set(temporary_of_session.rglob("*")) - before
    }
    assert root.startswith("tfx-estimator-testing-")


def test_what_an_executor_raises_is_raised() -> None:
    with pytest.raises(ValueError, match="the factor is negative"):
        testing.run_component(Measure, models=testing.artifact("Model"), factor=-1)
