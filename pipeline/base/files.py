"""Local files: those that a user names, writes that survive a power failure, our JSON files, errors of writing.

Standard library only: training tasks start with it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Optional, Union

from tfx_estimator.pipeline.base.errors import TfxEstimatorError
from tfx_estimator.pipeline.base.text import one_line

# The part of a log that is read for its last lines: a log may have gigabytes.
_TAIL_BYTES = 64 * 1024
_PERMISSIONS = 0o777
_FULL = ("No space left on device", "Disk quota exceeded", "database or disk is full")
# What a conversion measured, in the folder that it wrote.
PROOF = "proof.json"
# The paths in the messages of TensorFlow and Python.
_UNWRITTEN = re.compile(r"(/[^;:'\"\n]+); No space left|No space left on device: '(/[^'\n]+)'(?: -> '(/[^'\n]+)')?")


def open_regular(path: Any, most: Optional[int] = None) -> BinaryIO:
    """Opens a user's file, of at most so many bytes; raises an OSError for a pipe, which might be waited for."""
    if not isinstance(path, os.PathLike) or "://" in os.fspath(path):
        return path.open("rb")
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    status = os.fstat(file.fileno())
    if stat.S_ISREG(status.st_mode) and (most is None or status.st_size <= most):
        return file
    file.close()
    raise OSError(errno.EINVAL, "it is too large" if stat.S_ISREG(status.st_mode) else "it is not a regular file")


def write_whole(
    path: Union[str, os.PathLike[str]], content: Union[str, bytes], *, new: bool = False, named: bool = False
) -> None:
    """Writes a file atomically, and so that it survives a power failure.

    Args:
        new: Whether to raise FileExistsError for an existing file, if the file system has links.
        named: Whether the user named the file: then a link is followed and kept, and the file keeps its mode.
    """
    with drafting(path, new=new, named=named) as draft, open(draft, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def drafting(path: Union[str, os.PathLike[str]], *, new: bool = False, named: bool = False) -> Iterator[str]:
    """Writes a file atomically piece by piece: renames the draft if the context succeeds; see `write_whole`.

    Yields:
        The draft's path.
    """
    path = os.path.realpath(path) if named else path
    folder, name = os.path.split(os.fspath(path))
    # Processes in several containers may have the same pid.
    draft = os.path.join(folder, f".{name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        yield draft
        if named:
            with contextlib.suppress(FileNotFoundError):
                os.chmod(draft, os.stat(path).st_mode & _PERMISSIONS)
        sync(draft)
        if not (new and _is_linked(draft, path)):
            os.replace(draft, path)
        sync(folder or os.curdir)
    finally:
        with contextlib.suppress(OSError):
            os.remove(draft)


def sync(path: Union[str, os.PathLike[str]]) -> None:
    """Makes a file, or the names in a folder, survive a power failure."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno in (errno.EIO, errno.ENOSPC, errno.EDQUOT):  # others are of file systems without it
            raise
    finally:
        os.close(fd)


def make_dated(parent: Union[str, os.PathLike[str]]) -> str:
    """Makes a new folder that is named by the time, with a number if another one has the same second."""
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
    """Lists a folder, for suggestions; empty if it cannot be listed."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def read_tail(path: Union[str, os.PathLike[str]], lines: int) -> list[str]:
    """Returns the last lines of a text file, the first of them maybe truncated; empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
            text = file.read(_TAIL_BYTES)
    except OSError:
        return []
    return text.decode(errors="replace").splitlines()[-lines:]


def finite(value: Any) -> Any:
    """Returns a value for standard JSON: NaN and infinite numbers become None, at any depth."""
    if isinstance(value, Mapping):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _is_linked(draft: str, path: Union[str, os.PathLike[str]]) -> bool:
    """Links a draft to its name; returns False if the file system has no links."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:
        return False
    return True


def write_json(path: Union[str, os.PathLike[str]], value: Any, **options: Any) -> None:
    """Writes a value as JSON atomically, with options of `json.dumps`."""
    write_whole(path, json.dumps(value, **options))


def read_json(path: Union[str, os.PathLike[str]], kind: type = dict) -> Any:
    """Reads a JSON file of ours; None if there is none, see `parsed`."""
    try:
        with open(path, "rb") as file:
            return parsed(file.read(), kind)
    except FileNotFoundError:
        return None


def parsed(content: Union[str, bytes], kind: type = dict) -> Any:
    """Returns a JSON file's value; None if it is empty or garbled, as after a power failure, or of another type."""
    with contextlib.suppress(ValueError):
        value = json.loads(content)
        return value if isinstance(value, kind) else None
    return None


@contextlib.contextmanager
def writing(name: str) -> Iterator[None]:
    """Converts an OSError to an error that names the file."""
    try:
        yield
    except OSError as error:
        what = f"{one_line(name)} cannot be written: {error.strerror}"
        raise TfxEstimatorError(what, expected="a folder that you may write to", todo="choose another") from error


def full_disk(text: str, folder: str) -> str:
    """Returns the folder on the full disk that an error tells of, by default the given one; empty for another error."""
    if not any(each in text for each in _FULL):
        return ""
    found = [os.path.dirname(path) for paths in _UNWRITTEN.findall(text) for path in paths if path]
    return min(map(_existing, found or [folder, tempfile.gettempdir()]), key=lambda each: shutil.disk_usage(each).free)


def _existing(folder: str) -> str:
    """Returns the folder, or its nearest existing parent: a failed write may have removed its folder."""
    folder = os.path.abspath(folder)
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder
