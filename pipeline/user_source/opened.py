"""Notes the files that the user's code reads, with their hashes: TFX's cache keys lack them.

An audit hook sees what Python opens, wrappers see what libraries open in C. The user's code reads a file if one of its
frames is on the stack, without an import in between.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import hashlib
import json
import linecache
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from tfx_estimator.pipeline.base.ending import scratch
from tfx_estimator.pipeline.user_source.frames import GENERATED, is_users

_TF = "tensorflow.python"
# Functions that open files in C. The first argument names the files that are read; any, those that are written.
_IN_C = {
    "cv2": {"imread"},
    "h5py.h5f": {"create", "open"},
    "pyarrow.parquet": {"read_table"},
    f"{_TF}.data.ops.readers": {"_create_or_validate_filenames_dataset"},
    f"{_TF}.lib.io._pywrap_file_io": {"BufferedInputStream", "CopyFile", "RenameFile", "WritableFile"},
    f"{_TF}.lib.io._pywrap_record_io": {"RecordIterator"},
    f"{_TF}.ops.gen_io_ops": {"merge_v2_checkpoints", "read_file"},
    f"{_TF}.trackable.asset": {"Asset.__init__"},
    f"{_TF}.training.py_checkpoint_reader": {"NewCheckpointReader"},
}
_WRITING = {"create", "RenameFile", "WritableFile", "merge_v2_checkpoints"}
# Bytes that a process hashes when files are opened; of others sizes and times count, as of a big data set.
_MOST = 1 << 30
_SYSTEM = ("/dev/", "/etc/", "/proc/", "/run/", "/sys/")
# Their frames read modules: to import them, and for tracebacks and AutoGraph.
_OF_MODULES = ("<frozen importlib", linecache.__file__)
_T = TypeVar("_T")


class _Notes:
    calls = 0  # of `noting` that have not returned
    others: tuple[str, ...] = ()
    into = ""
    hashed = 0  # bytes
    # By path; empty if this process has written the file. They stay, as a module is imported once in a process.
    hashes: dict[str, str] = {}


def noting(function: Callable[..., _T], *arguments: Any, own: Iterable[str] = (), into: str = "") -> _T:
    """Calls a function, and notes the files that the user's code reads meanwhile: see `noted`.

    Args:
        own: Folders whose files are the pipeline's.
        into: File for the notes of a process that calls this once; each is written at once, as JSON, in a line.
    """
    _install()
    folders = filter(None, (*own, scratch.of_this_run()))
    _Notes.others = (*_SYSTEM, *(os.path.join(os.path.abspath(each), "") for each in folders))
    _Notes.into, _Notes.hashes = into, {} if into else _Notes.hashes
    _Notes.calls += 1
    watch()
    try:
        return function(*arguments)
    finally:
        _Notes.calls -= 1


def noted() -> dict[str, str]:
    """Returns the hashes of the files that the user's code has read in this process, by path."""
    return {path: digest for path, digest in _Notes.hashes.items() if digest}


def hash_file(path: str, like: str = "") -> str:
    """Returns the SHA-256 of a file, or its size and time if `like` is that, or beyond `_MOST`; empty without one."""
    with contextlib.suppress(OSError, ValueError):
        if os.path.isfile(path):
            found = os.stat(path)
            if " " in like or (not like and _Notes.hashed + found.st_size > _MOST):
                return f"{found.st_size} bytes, {found.st_mtime_ns}"
            _Notes.hashed += 0 if like else found.st_size
            return _hash(path, found.st_ctime_ns, found.st_size)
    return ""


@functools.lru_cache(maxsize=4096)
def _hash(path: str, *_: int) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


@functools.cache
def _install() -> None:
    # A hook cannot be removed.
    sys.addaudithook(_on_event)


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or not _Notes.calls:
        return
    path, _, flags = arguments
    if isinstance(path, (str, bytes)):
        path = os.path.abspath(os.fsdecode(path))
        if not flags & (os.O_WRONLY | os.O_CREAT):
            _note(path, sys._getframe(1))
        else:
            _keep(path)
    watch()


def watch() -> None:
    """Wraps the functions that open files in C, of modules imported since."""
    for module, name in [(each, name) for each in _IN_C for name in [*_IN_C[each]]] if _Notes.calls else ():
        *outer, last = name.split(".")
        with contextlib.suppress(KeyError, AttributeError):  # not imported, or halfway
            owner = functools.reduce(getattr, outer, sys.modules[module])
            setattr(owner, last, _watched(getattr(owner, last), len(outer), name in _WRITING))
            _IN_C[module].remove(name)


def _watched(original: Callable[..., Any], index: int, writes: bool) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*given: Any, **named: Any) -> Any:
        arguments = [*given, *named.values()]
        for path in _paths(arguments[index]) if _Notes.calls and not writes else ():
            _note(os.path.abspath(path), sys._getframe(1))
        result = original(*given, **named)
        for path in _paths(arguments) if _Notes.calls and writes else ():
            _keep(os.path.abspath(path))
        return result

    return call


def _paths(value: Any) -> Iterator[str]:
    """Yields the files of a path, a checkpoint's prefix, or a list or tensor of such."""
    if hasattr(value, "dtype"):
        value = _strings(value)
    if isinstance(value, (str, bytes, os.PathLike)):
        path = os.fsdecode(value)
        parts = (part for suffix in (".index", ".data-*") for part in glob.glob(glob.escape(path) + suffix))
        yield from [path] if os.path.isfile(path) else parts
    elif isinstance(value, (list, tuple)) or hasattr(value, "ravel"):
        for each in getattr(value, "ravel", lambda: value)():
            yield from _paths(each)


def _strings(value: Any) -> Any:
    """Returns the strings of an array or a tensor; None if only a session knows them, or for numbers."""
    if hasattr(value, "ravel"):
        return value if value.dtype.kind in "OSU" else None
    tensorflow = sys.modules["tensorflow"]
    if value.dtype != tensorflow.string:
        return None
    if isinstance(value, tensorflow.__internal__.EagerTensor):
        return value.numpy()
    # Not by get_static_value: a session could feed the tensor no more, as Keras does when it saves weights.
    operation: Any = getattr(value, "op", None)
    return tensorflow.make_ndarray(operation.get_attr("value")) if getattr(operation, "type", "") == "Const" else None


def _note(path: str, frame: Any) -> None:
    if path not in _Notes.hashes and not path.startswith(_Notes.others) and _is_users(frame):
        _Notes.hashes[path] = ""  # while it is opened to be hashed
        if digest := hash_file(path):
            _keep(path, digest)


def _keep(path: str, digest: str = "") -> None:
    if path.startswith(_Notes.others) or _Notes.hashes.get(path) == digest:
        return
    _Notes.hashes[path] = digest
    # A full disk ends the training elsewhere.
    if _Notes.into:
        with contextlib.suppress(OSError), open(_Notes.into, "a", encoding="utf-8") as file:
            file.write(json.dumps([path, digest]) + "\n")


def _is_users(frame: Any) -> bool:
    while frame is not None and frame.f_code is not noting.__code__:
        if (file := frame.f_code.co_filename).startswith(_OF_MODULES):
            return False
        if _is_users_module(file):
            return True
        frame = frame.f_back
    return False


@functools.cache
def _is_users_module(file: str) -> bool:
    return GENERATED in file or is_users(file)
