"""A component that looks at what its run has stored, and fails."""

from pathlib import Path

from tfx.dsl.component.experimental.annotations import OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types import standard_artifacts


@component
def Failing(model: OutputArtifact[standard_artifacts.Model], stored: Parameter[str], seen: Parameter[str]):  # noqa: N802
    """Keeps the database that lies in the store while artifacts are being made, and fails."""
    Path(seen).write_bytes(Path(stored).read_bytes())
    raise ValueError(model.uri)
