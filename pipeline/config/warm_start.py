"""The section `trainer.warm_start`: initial weights from another training."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Literal, Optional

from tfx_estimator.pipeline.config.section import Field, Section

# Folders of TFX's model artifact and of a SavedModel.
_SERVING = "Format-Serving"
_VARIABLES = os.path.join("variables", "variables")
_LATEST = re.compile(r'^model_checkpoint_path: "(.*)"$', re.MULTILINE)
_BLOCK = 2**20
# How the files of Keras begin: HDF5, and the zip archive of `.keras`.
_OF_KERAS = (b"\x89HDF\r\n\x1a\n", b"PK\x03\x04")


class WarmStart(Section):
    """Weights of another training. Exactly one of `weights`, `checkpoint`, `model` and `blessed`."""

    weights: Optional[str] = Field(None, "a file that Keras's save_weights or save wrote: .weights.h5, .h5 or .keras")
    checkpoint: Optional[str] = Field(None, "a checkpoint's path without .index, or a folder, for its latest")
    model: Optional[str] = Field(None, "a SavedModel, a run's model, or a folder of pushed models, for its newest")
    blessed: Optional[Literal["latest"]] = Field(
        None,
        "of a table of days: the training of the latest blessed model of an earlier day, with its slots, from step 0; "
        "each word has its own weights, whatever its place in the vocabulary",
    )
    vocabularies: Optional[dict[str, tuple[str, ...]]] = Field(
        None,
        "with `blessed`, by feature: the variables with a row for each of its words, by patterns of their names; null "
        "takes those with the feature's name in theirs",
    )
    exclude: tuple[str, ...] = Field((), "variables to initialize anew, by patterns of their names: ['logits/*']")
    prefix: str = Field(
        "", "load only this layer or model, by its name in the file or else in the network: 'base', or a pattern"
    )
    resume: bool = Field(False, "resume at the checkpoint's step, with the optimizer's slots")

    @property
    def source(self) -> str:
        """The prefix of the checkpoint that TensorFlow reads, or the file of Keras; empty if there are no weights."""
        if self.weights is not None:
            return self.weights if _is_of_keras(self.weights) else ""
        if self.checkpoint is not None:
            return _checkpoint(self.checkpoint)
        return _model(self.model or "")

    @property
    def step(self) -> int:
        """The checkpoint's step, from its name; -1 if that has none."""
        step = self.source.rpartition("-")[2]
        return int(step) if step.isdigit() else -1

    def fingerprint(self) -> str:
        """Returns the hash of the weights, independent of their path, for the cache key."""
        found, source = hashlib.sha256(), Path(self.source)
        files = [source] if self.weights else sorted(source.parent.glob(f"{source.name}.*"))
        for file in files:
            found.update(file.name.removeprefix(source.name).encode())
            with file.open("rb") as content:
                while block := content.read(_BLOCK):
                    found.update(block)
        return found.hexdigest()


def _is_of_keras(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(8).startswith(_OF_KERAS)
    except OSError:
        return False


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
