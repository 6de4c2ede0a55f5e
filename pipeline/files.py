"""Files of this machine that are there whole or not at all. Standard library only: training tasks start with it."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Union


def write_whole(path: Union[str, os.PathLike[str]], content: Union[str, bytes]) -> None:
    """Writes a file, or leaves what was there: nobody sees half of it, however this process ends.

    Args:
        path: The file; a file that is there is replaced.
        content: Text becomes UTF-8.

    Raises:
        OSError: It cannot be written.
    """
    folder, name = os.path.split(os.fspath(path))
    draft = os.path.join(folder, f".{name}.{os.getpid()}")
    try:
        with open(draft, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(draft)
        raise


def write_json(path: Union[str, os.PathLike[str]], value: Any, **options: Any) -> None:
    """Writes a value as JSON, whole or not at all.

    Args:
        path: As of `write_whole`.
        value: What JSON can hold.
        **options: Of `json.dumps`.

    Raises:
        OSError: It cannot be written.
    """
    write_whole(path, json.dumps(value, **options))
