"""Remembers from which source code a user's builder prepared its data, and tells of changes that TFDS does not see."""

from __future__ import annotations

import json
from typing import Any, Optional

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.user_source.fingerprint import fingerprint_source

# Beside TFDS's own files, which it leaves alone.
_FILE = "tfx_estimator.json"

_log = get_logger("data")


def remember(cls: type, folder: Any) -> None:
    """Writes the fingerprint of a builder's source beside the data that it prepared.

    Args:
        folder: `epath.Path` of the version.
    """
    if source := _fingerprint(cls):
        try:
            (folder / _FILE).write_text(json.dumps({"source": source}) + "\n")
        except OSError as error:
            _log.info("Cannot remember from which source %s was prepared: %s", folder, error)


def notes(cls: type, folder: Any) -> tuple[str, ...]:
    """Returns a note where the source was edited since and the version stayed.

    Args:
        folder: `epath.Path` of the version.
    """
    try:
        prepared_from = json.loads((folder / _FILE).read_text())["source"]
    except (OSError, ValueError, KeyError, TypeError):
        return ()  # prepared by TFDS itself, or by an earlier version of this project
    source = _fingerprint(cls)
    if source is None or source == prepared_from:
        return ()
    return (
        f"{cls.__module__}:{cls.__name__} was edited since its data were prepared in {folder}, which are used as they "
        "are; raise VERSION in the class, or delete that folder, to have them prepared again",
    )


def _fingerprint(cls: type) -> Optional[str]:
    """Of the class's module and the user's modules that it imports; None if there is no text to read."""
    try:
        return fingerprint_source(f"{cls.__module__}:{cls.__name__}")
    except DeclarationError:
        return None
