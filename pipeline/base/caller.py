"""What a verb says to the Python program that called it as a function: see `pipeline.python.call`.

It goes through a pipe, as JSON, line by line. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Optional

# Holds the number of the pipe's descriptor.
VARIABLE = "TFX_ESTIMATOR_CALLER"
MOVING, FOLDER, ERROR = "moving", "folder", "error"
_fd: Optional[int] = None


def take() -> None:
    """Takes the pipe, so that no process that this one starts has it."""
    global _fd
    number = os.environ.pop(VARIABLE, "")
    if number.isdecimal():
        _fd = int(number)
        os.set_inheritable(_fd, False)


def tell(**said: Any) -> bool:
    """Tells the caller, by the names above; returns whether there is one."""
    if _fd is None:
        return False
    # It may have gone; then the kernel ends this process.
    with contextlib.suppress(OSError):
        os.write(_fd, json.dumps(said).encode() + b"\n")
    return True
