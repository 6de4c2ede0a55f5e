"""An executor that makes what its component would, without its work: for tests of what runs again, and why."""

from __future__ import annotations

import os
from typing import Any

from tfx.dsl.components.base import base_beam_executor, base_executor


class Writes(base_executor.BaseExecutor):
    """Leaves a file in each output; each model is blessed and pushed."""

    def Do(self, input_dict: dict[str, Any], output_dict: dict[str, Any], exec_properties: dict[str, Any]) -> None:
        for name, artifacts in output_dict.items():
            for artifact in artifacts:
                os.makedirs(artifact.uri, exist_ok=True)
                with open(os.path.join(artifact.uri, "made"), "w", encoding="utf-8") as file:
                    file.write(name)
                if name == "blessing":
                    artifact.set_int_custom_property("blessed", 1)


class WritesByBeam(base_beam_executor.BaseBeamExecutor):
    """The same for a component whose key has the options of Beam."""

    Do = Writes.Do
