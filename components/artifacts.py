"""The artifacts that TFX gives an executor."""

from __future__ import annotations

from tfx import types

# By key; for an executor, what it reads or what it is to write.
Artifacts = dict[str, list[types.Artifact]]
