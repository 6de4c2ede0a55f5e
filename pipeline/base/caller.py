"""Messages of a verb to the Python program that called it as a function: see `pipeline.python.call`.

They are lines of JSON in a pipe. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Optional

# The pipe's file descriptor.
VARIABLE = "TFX_ESTIMATOR_CALLER"
MOVING, FOLDER, ERROR = "moving", "folder", "error"
_fd: Optional[int] = None


def take() -> None:
    """Takes over the pipe, so that no child process inherits it."""
    global _fd
    number = os.environ.pop(VARIABLE, "")
    if number.isdecimal():
        _fd = int(number)
        os.set_inheritable(_fd, False)


def tell(**message: Any) -> bool:
    """Sends a message with the keys above; returns False if no program called this one."""
    if _fd is None:
        return False
    # The caller may be gone; the kernel then ends this process.
    with contextlib.suppress(OSError):
        os.write(_fd, json.dumps(message).encode() + b"\n")
    return True
