"""Files of this machine: those that are there whole or not at all, the ends of long ones, and what cannot be written.

Standard library only: training tasks start with it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any, Union

from tfx_estimator.pipeline.base.errors import TfxEstimatorError
from tfx_estimator.pipeline.base.text import one_line

# Where the last lines of a log are looked for: a chatty training's has gigabytes.
_TAIL_BYTES = 64 * 1024
_PERMISSIONS = 0o777


def write_whole(
    path: Union[str, os.PathLike[str]], content: Union[str, bytes], *, new: bool = False, named: bool = False
) -> None:
    """Writes a file, or leaves what was there: nobody sees half of it, however this process ends.

    Args:
        new: Whether a file that is there is an error, FileExistsError, where the file system has links.
        named: Whether a person named the file: then a link leads to it and stays, and the file keeps its mode.
    """
    with drafting(path, new=new, named=named) as draft, open(draft, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def drafting(path: Union[str, os.PathLike[str]], *, new: bool = False, named: bool = False) -> Iterator[str]:
    """Gives a file that is written piece by piece its name when the context ends well; see `write_whole`.

    Yields:
        The path to write it to.
    """
    path = os.path.realpath(path) if named else path
    folder, name = os.path.split(os.fspath(path))
    # Processes of several containers, whose numbers are the same, may write one file.
    draft = os.path.join(folder, f".{name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        yield draft
        if named:
            with contextlib.suppress(FileNotFoundError):
                os.chmod(draft, os.stat(path).st_mode & _PERMISSIONS)
        if not (new and _is_linked(draft, path)):
            os.replace(draft, path)
    finally:
        with contextlib.suppress(OSError):
            os.remove(draft)


def make_dated(parent: Union[str, os.PathLike[str]]) -> str:
    """Makes a new folder that is named by the time; of several in one second the later ones have a number."""
    os.makedirs(parent, exist_ok=True)
    first = folder = os.path.join(parent, time.strftime("%Y%m%d-%H%M%S"))
    number = 1
    while True:
        try:
            os.mkdir(folder)
            return folder
        except FileExistsError:
            number += 1
            folder = f"{first}-{number}"


def names_in(folder: Union[str, os.PathLike[str]]) -> list[str]:
    """Lists a folder, for suggestions: one that is not there, or may not be listed, is empty."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def read_tail(path: Union[str, os.PathLike[str]], lines: int) -> list[str]:
    """Reads the last lines of a text that may be huge, or not there; the first may have lost its beginning."""
    try:
        with open(path, "rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
            text = file.read(_TAIL_BYTES)
    except OSError:
        return []
    return text.decode(errors="replace").splitlines()[-lines:]


def finite(value: Any) -> Any:
    """Returns what standard JSON can hold: a number that is none, or infinite, is None there, however deep."""
    if isinstance(value, Mapping):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _is_linked(draft: str, path: Union[str, os.PathLike[str]]) -> bool:
    """Gives a draft its name, if the file system has links and nobody has that name."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:
        return False
    return True


def write_json(path: Union[str, os.PathLike[str]], value: Any, **options: Any) -> None:
    """Writes a value as JSON, whole or not at all, with options of `json.dumps`."""
    write_whole(path, json.dumps(value, **options))


@contextlib.contextmanager
def writing(name: str) -> Iterator[None]:
    """Says which file it was that could not be written."""
    try:
        yield
    except OSError as error:
        what = f"{one_line(name)} cannot be written: {error.strerror}"
        raise TfxEstimatorError(what, expected="a folder that you may write to", todo="choose another") from error
