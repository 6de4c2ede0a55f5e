"""An executor's artifacts, and its execution properties that are not part of TFX's cache key.

The latter determine where and how a component works, not its output. TFX hashes every execution property, with the
executor's flags and Beam arguments, but not the pipeline's own definition: a driver blanks such a property before the
key is computed, and the executor reads it from the pipeline node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from tfx import types
from tfx.dsl.components.base import base_driver
from tfx.orchestration.portable import data_types
from tfx.proto.orchestration import driver_output_pb2, pipeline_pb2

# An executor's inputs or outputs, by key.
Artifacts = dict[str, list[types.Artifact]]


class UnkeyedDriver(base_driver.BaseDriver):
    """Blanks properties before TFX looks for cached outputs; each component's subclass names them.

    They are blank in ML Metadata too. Some runners have no drivers, or only TFX's own: there the properties are part
    of the key.

        class Driver(UnkeyedDriver):
            UNKEYED = ("location",)

        class Component(base_component.BaseComponent):
            DRIVER_CLASS = Driver
    """

    # Names of string properties.
    UNKEYED: tuple[str, ...] = ()

    def run(self, execution_info: data_types.ExecutionInfo) -> driver_output_pb2.DriverOutput:
        """See BaseDriver."""
        output = driver_output_pb2.DriverOutput()
        for name in self.UNKEYED:
            output.exec_properties[name].string_value = ""
        return output


def unkeyed_property(node: Optional[pipeline_pb2.PipelineNode], exec_properties: Mapping[str, Any], name: str) -> str:
    """Returns the value of a blanked property; empty if there is none."""
    if node is None:  # a runner without nodes has no drivers either
        return str(exec_properties.get(name) or "")
    return node.parameters.parameters[name].field_value.string_value
