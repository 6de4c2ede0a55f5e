"""The error for a file that is not what it should be."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Any

from tfx_estimator.pipeline.base.errors import DamagedDataError
from tfx_estimator.pipeline.base.text import one_line

_TODO = "fetch the file again, or remove it from the folder"


def damaged(path: Any, what: str, expected: str, todo: str = _TODO) -> DamagedDataError:
    """Returns the error for a file that is not what it should be."""
    return DamagedDataError(f"damaged file {one_line(str(path))}: {what}", expected=expected, todo=todo)


@contextlib.contextmanager
def reading(path: Any, todo: str = _TODO) -> Iterator[None]:
    """Names a file that cannot be read as it should: missing, a link to nowhere, a folder, a pipe, or not ours to read.

    Args:
        path: The file, for messages.

    Raises:
        DamagedDataError: Reading it failed in the context.
    """
    if not os.path.isfile(path) and not os.path.isdir(path) and os.path.exists(path):
        # Whoever opens a pipe waits for somebody who writes.
        raise damaged(path, "it is a pipe, a socket or a device", "a regular file", todo)
    try:
        yield
    except FileNotFoundError:
        raise damaged(path, "it is missing", "the file that was there before", todo) from None
    except UnicodeDecodeError as error:
        raise damaged(path, f"it is no text: {error.reason} at byte {error.start}", "UTF-8", todo) from None
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise  # of the machine, and not of the file
        raise damaged(path, f"it cannot be read: {error.strerror or error}", "a readable file", todo) from None
