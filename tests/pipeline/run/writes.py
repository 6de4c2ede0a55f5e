"""Executors that write outputs without doing the work, for tests of reruns."""

from __future__ import annotations

import os
from typing import Any

from tfx.dsl.components.base import base_beam_executor, base_executor


class Writes(base_executor.BaseExecutor):
    """Writes a file to each output; each model is blessed."""

    def Do(self, input_dict: dict[str, Any], output_dict: dict[str, Any], exec_properties: dict[str, Any]) -> None:
        for name, artifacts in output_dict.items():
            for artifact in artifacts:
                os.makedirs(artifact.uri, exist_ok=True)
                with open(os.path.join(artifact.uri, "made"), "w", encoding="utf-8") as file:
                    file.write(name)
                if name == "blessing":
                    artifact.set_int_custom_property("blessed", 1)


class WritesByBeam(base_beam_executor.BaseBeamExecutor):
    """The same for a Beam component, whose cache key has Beam's options."""

    Do = Writes.Do
