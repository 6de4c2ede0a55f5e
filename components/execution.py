"""What TFX gives an executor: artifacts, and properties that are no part of TFX's cache key.

The latter say where and how a component works, not what it makes. TFX hashes every execution property, and the
executor's flags and Beam arguments with them. What the pipeline declares is not hashed itself: a driver blanks such a
property before the key is taken, and the executor looks it up there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from tfx import types
from tfx.dsl.components.base import base_driver
from tfx.orchestration.portable import data_types
from tfx.proto.orchestration import driver_output_pb2, pipeline_pb2

# By key; for an executor, what it reads or what it is to write.
Artifacts = dict[str, list[types.Artifact]]


class UnkeyedDriver(base_driver.BaseDriver):
    """Blanks properties before TFX looks for cached outputs; a component's own subclass names them.

    An execution that ran has them blank in ML Metadata. Not every runner has drivers, or others than
    TFX's own: there the properties are part of the key.

        class Driver(UnkeyedDriver):
            UNKEYED = ("location",)

        class Component(base_component.BaseComponent):
            DRIVER_CLASS = Driver
    """

    # Names of text properties.
    UNKEYED: tuple[str, ...] = ()

    def run(self, execution_info: data_types.ExecutionInfo) -> driver_output_pb2.DriverOutput:
        """See BaseDriver."""
        output = driver_output_pb2.DriverOutput()
        for name in self.UNKEYED:
            output.exec_properties[name].string_value = ""
        return output


def unkeyed_property(node: Optional[pipeline_pb2.PipelineNode], exec_properties: Mapping[str, Any], name: str) -> str:
    """Returns the value of a blanked property; empty if there is none."""
    if node is None:  # the runner has none, and so no driver either
        return str(exec_properties.get(name) or "")
    return node.parameters.parameters[name].field_value.string_value
