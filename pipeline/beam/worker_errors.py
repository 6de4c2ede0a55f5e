"""What was raised in a worker process, told to the process that started it: by its type, text and lines."""

from __future__ import annotations

import json
import os
import pickle
import time
import uuid
from typing import Optional

from tfx_estimator.pipeline.errors import TfxEstimatorError
from tfx_estimator.pipeline.user_source.frames import FarError, causes, user_lines

# Names the folder.
VARIABLE = "TFX_ESTIMATOR_BEAM_ERRORS"


def write(error: BaseException) -> None:
    """Writes an error down, in a worker.

    Args:
        error: With its traceback.
    """
    ours = next((cause for cause in causes(error) if isinstance(cause, TfxEstimatorError)), None)
    ended = next((cause for cause in causes(error) if isinstance(cause, SystemExit)), None)
    text = json.dumps(
        {
            "ours": pickle.dumps(ours).hex() if ours else "",
            "ended": [] if ended is None else [ended.code if isinstance(ended.code, int) else str(ended.code)],
            "type": type(error).__name__,
            "text": str(error),
            # Beam raises an error once more, with the step's name: both have the same lines.
            "lines": list(dict.fromkeys(user_lines(error))),
        }
    )
    # Sorted by time.
    path = os.path.join(os.environ[VARIABLE], f"{time.monotonic_ns():020}-{uuid.uuid4().hex}")
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(f"{path}.part", path)


def read(folder: str) -> Optional[BaseException]:
    """Reads the first error.

    Args:
        folder: Where the workers wrote.

    Returns:
        One of this project's, if that is at the bottom of it; one that has the other's name, text and lines; or None if
        none was written.
    """
    names = sorted(name for name in os.listdir(folder) if not name.endswith(".part"))
    if not names:
        return None
    with open(os.path.join(folder, names[0]), encoding="utf-8") as file:
        told = json.load(file)
    if told["ours"]:
        return pickle.loads(bytes.fromhex(told["ours"]))
    error = type(told["type"], (FarError,), {})(told["text"], told["lines"])
    if told["ended"]:
        error.__cause__ = SystemExit(*told["ended"])
    return error
