"""The section `trainer.warm_start`: from which weights training begins."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Optional

from tfx_estimator.pipeline.config.section import Field, Section

# What `convert` measured: beside the folder of its checkpoints, and in the training that goes on from them.
PROOF = "proof.json"
# Names of TFX and SavedModel for the parts of a model.
_SERVING = "Format-Serving"
_VARIABLES = os.path.join("variables", "variables")
_LATEST = re.compile(r'^model_checkpoint_path: "(.*)"$', re.MULTILINE)
_BLOCK = 2**20


class WarmStart(Section):
    """Weights of another training. Exactly one of `checkpoint` and `model`."""

    checkpoint: Optional[str] = Field(
        None, "a checkpoint without its .index, or a folder, of whose checkpoints the last is taken"
    )
    model: Optional[str] = Field(
        None, "a SavedModel; or a run's model, or a folder of pushed ones, of which the newest"
    )
    exclude: tuple[str, ...] = Field((), "variables that begin anew, by patterns of their names: ['logits/*']")
    resume: bool = Field(
        False, "goes on from the checkpoint's step, with the optimizer's slots, as if it were this training's own"
    )

    @property
    def prefix(self) -> str:
        """The path that TensorFlow reads the weights by; empty if there are none."""
        if self.checkpoint is not None:
            return _checkpoint(self.checkpoint)
        return _model(self.model or "")

    @property
    def step(self) -> int:
        """Of which step the checkpoint is, by its name; -1 where that tells none."""
        step = self.prefix.rpartition("-")[2]
        return int(step) if step.isdigit() else -1

    def fingerprint(self) -> str:
        """Returns the hash of the weights: what is trained depends on them, wherever they lie."""
        found, prefix = hashlib.sha256(), Path(self.prefix)
        for file in sorted(prefix.parent.glob(f"{prefix.name}.*")):
            found.update(file.name.removeprefix(prefix.name).encode())
            with file.open("rb") as content:
                while block := content.read(_BLOCK):
                    found.update(block)
        return found.hexdigest()


def _checkpoint(path: str) -> str:
    if os.path.isfile(f"{path}.index"):
        return path
    folder = Path(path)
    try:
        named = _LATEST.search((folder / "checkpoint").read_text())
        latest = str(folder / named[1]) if named else ""
    except (OSError, ValueError):
        latest = ""
    return latest if latest and os.path.isfile(f"{latest}.index") else ""


def _model(path: str) -> str:
    inner = os.path.join(path, _SERVING)
    folder = inner if os.path.isdir(inner) else path
    try:
        versions = sorted((int(name), name) for name in os.listdir(folder) if name.isdigit())
    except (OSError, ValueError):
        return ""
    places = [folder, *(os.path.join(folder, name) for _, name in reversed(versions))]
    prefixes = (os.path.join(place, _VARIABLES) for place in places)
    return next((prefix for prefix in prefixes if os.path.isfile(f"{prefix}.index")), "")
