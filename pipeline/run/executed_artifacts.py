"""Results of what a compiled pipeline made, wherever it was executed: artifacts in a RuntimeArtifact's JSON."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tfx_estimator.pipeline.base.text import first_line
from tfx_estimator.pipeline.run.summary import Summary

if TYPE_CHECKING:
    from tfx.types import Artifact

# By task, then by output.
OutputsInJson = Mapping[str, Mapping[str, Mapping[str, Any]]]


def add_outputs(results: Summary, outputs: OutputsInJson) -> None:
    """Adds to a summary what the tasks came to.

    Args:
        results: The summary; how the tasks went is in it already.
    """
    from tfx_estimator.pipeline.run.results import add_outputs_to

    add_outputs_to(results, {task: _Artifacts(own) for task, own in outputs.items()})


def add_readable_outputs(results: Summary, outputs: OutputsInJson) -> list[str]:
    """Adds to a summary what the tasks came to, as far as it can be read from here.

    Args:
        results: As of `add_outputs`.

    Returns:
        What went wrong, a line for each artifact whose files are out of reach.
    """
    wrong = []
    for task, own in outputs.items():
        for key, artifact in own.items():
            try:
                add_outputs(results, {task: {key: artifact}})
            except Exception as error:  # file systems, and what parses their files, have errors of their own
                wrong.append(f"{task}: {artifact.get('uri') or key} cannot be read from here: {first_line(error)}")
    return wrong


class _Artifacts(UserDict[str, Any]):
    """A task's artifacts, each as TFX has it when it is read: a pipeline may have steps with types of their own."""

    def __getitem__(self, key: str) -> Artifact:
        from tfx_estimator.pipeline.platforms.pipeline_spec import read_artifact

        return read_artifact(super().__getitem__(key))
