"""Registers s3:// with TensorFlow: fills the C tables of its plug-in interface for file systems, by ctypes.

The structures are those of tensorflow/c/experimental/filesystem/filesystem_interface.h, equal in TensorFlow 2.15 and
2.21. A handle in them is a number, and the object that it stands for is here.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.base.s3 import store
from tfx_estimator.pipeline.base.s3.asking import AbsentError, RefusedError, UnansweredError
from tfx_estimator.pipeline.base.s3.files import OutOfRangeError, Reader, Writer
from tfx_estimator.pipeline.base.s3.store import Place

_REGISTER = "_ZN10tensorflow23filesystem_registration28RegisterFilesystemPluginImplEPK23TF_FilesystemPluginInfo"
# TensorFlow's codes of errors.
_CANCELLED, _UNKNOWN, _NOT_FOUND, _EXISTS, _DENIED, _PRECONDITION, _OUT_OF_RANGE = 1, 2, 5, 6, 7, 9, 11
_UNAVAILABLE, _UNAUTHENTICATED = 14, 16
_REFUSALS = {403: _DENIED, 401: _UNAUTHENTICATED, 409: _PRECONDITION, 412: _PRECONDITION}

_Pointer, _Text, _Status = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
_Handle = ctypes.POINTER(ctypes.c_void_p)
_Names = ctypes.POINTER(ctypes.c_void_p)

# At the end of a process: seconds without a call of TensorFlow's threads, and the longest wait for that.
_QUIET_SECONDS, _LONGEST_END_SECONDS = 0.05, 2.0

# A signal that nobody sends.
_AGAIN = getattr(signal, "SIGRTMAX", signal.SIGUSR2) - 7

logger = get_logger("s3")


class _Statistics(ctypes.Structure):
    _fields_ = [("length", ctypes.c_int64), ("mtime_nsec", ctypes.c_int64), ("is_directory", ctypes.c_bool)]


def _function(result: Any, *arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(result, *arguments)


_Cleanup = _function(None, _Handle)


class _Reading(ctypes.Structure):
    _fields_ = [
        ("cleanup", _Pointer),
        ("read", _function(ctypes.c_int64, _Handle, ctypes.c_uint64, ctypes.c_size_t, _Pointer, _Status)),
    ]


class _Writing(ctypes.Structure):
    _fields_ = [
        ("cleanup", _Cleanup),
        ("append", _function(None, _Handle, _Pointer, ctypes.c_size_t, _Status)),
        ("tell", _function(ctypes.c_int64, _Handle, _Status)),
        ("flush", _function(None, _Handle, _Status)),
        ("sync", _function(None, _Handle, _Status)),
        ("close", _function(None, _Handle, _Status)),
    ]


class _Mapping(ctypes.Structure):
    _fields_ = [("cleanup", _Pointer), ("data", _Pointer), ("length", _Pointer)]


_OfPath = _function(None, _Pointer, _Text, _Status)
_Opens = _function(None, _Pointer, _Text, _Handle, _Status)
_OfTwo = _function(None, _Pointer, _Text, _Text, _Status)
_Counts = ctypes.POINTER(ctypes.c_uint64)
_Translates = _function(_Pointer, _Pointer, _Text)
_Lists = _function(ctypes.c_int, _Pointer, _Text, ctypes.POINTER(_Names), _Status)


class _System(ctypes.Structure):
    _fields_ = [
        ("init", _Pointer),
        ("cleanup", _Pointer),
        ("new_random_access_file", _Opens),
        ("new_writable_file", _Opens),
        ("new_appendable_file", _Opens),
        ("new_read_only_memory_region_from_file", _Pointer),
        ("create_dir", _OfPath),
        ("recursively_create_dir", _OfPath),
        ("delete_file", _OfPath),
        ("delete_dir", _OfPath),
        ("delete_recursively", _function(None, _Pointer, _Text, _Counts, _Counts, _Status)),
        ("rename_file", _OfTwo),
        ("copy_file", _OfTwo),
        ("path_exists", _OfPath),
        ("paths_exist", _Pointer),
        ("stat", _function(None, _Pointer, _Text, ctypes.POINTER(_Statistics), _Status)),
        ("is_directory", _function(ctypes.c_bool, _Pointer, _Text, _Status)),
        ("get_file_size", _function(ctypes.c_int64, _Pointer, _Text, _Status)),
        ("translate_name", _Translates),
        ("get_children", _Lists),
        ("get_matching_paths", _Lists),
        ("flush_caches", _Pointer),
        # Transactions and options, which no caller uses.
        *((f"unused_{number}", _Pointer) for number in range(11)),
    ]


class _Table(ctypes.Structure):
    _fields_ = [
        ("scheme", _Pointer),
        *(
            field
            for name in ("filesystem", "random_access_file", "writable_file", "read_only_memory_region")
            for field in (
                (f"{name}_abi", ctypes.c_int),
                (f"{name}_api", ctypes.c_int),
                (f"{name}_size", ctypes.c_size_t),
                (f"{name}_ops", _Pointer),
            )
        ),
    ]


class _Info(ctypes.Structure):
    _fields_ = [
        ("num_schemes", ctypes.c_size_t),
        ("ops", _Pointer),
        ("allocate", _Pointer),
        ("free", _Pointer),
    ]


class _Answer(ctypes.Structure):
    # absl's Status, and room for those that are returned in memory.
    _fields_ = [("value", ctypes.c_uint64), ("rest", ctypes.c_uint64 * 2)]


def register() -> None:
    """Registers s3:// in this process; logs why it cannot."""
    folder = os.path.dirname(str(sys.modules["tensorflow"].__file__))
    try:
        core = ctypes.CDLL(os.path.join(folder, "libtensorflow_cc.so.2"))
        framework = ctypes.CDLL(os.path.join(folder, "libtensorflow_framework.so.2"))
        call = getattr(core, _REGISTER)
        answer = _Plugin(framework.TF_SetStatus).register(call)
    except (OSError, AttributeError) as error:
        logger.debug(f"this TensorFlow takes no file systems, so it cannot read s3://: {error}")
        return
    if answer not in (0, 1):  # absl's OK, of either version
        logger.debug("another package has registered s3://, such as tensorflow-io")


class _Plugin:
    """The tables, which live as long as the process, and the functions in them."""

    _kept: list[Any] = []

    def __init__(self, set_status: Any) -> None:
        set_status.argtypes, set_status.restype = [_Status, ctypes.c_int, _Text], None
        self._set_status = set_status
        self._libc = ctypes.CDLL(None)
        self._libc.malloc.argtypes, self._libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
        self._numbers = itertools.count(1)
        self._open: dict[int, Any] = {}
        self._readers: dict[Reader, int] = {}
        self._ended, self._called = False, 0.0

    def register(self, call: Any) -> int:
        """Hands the tables to TensorFlow; returns its answer."""
        # Called when the process ends, after Python: a function of C that takes a pointer and does nothing.
        nothing = ctypes.cast(self._libc.labs, ctypes.c_void_p)
        reading = self._table(_Reading, read=self._read)
        reading.cleanup = nothing
        writing = self._table(
            _Writing,
            cleanup=self._drop,
            append=self._append,
            tell=lambda handle: self._file(handle).tell(),
            flush=lambda handle: self._file(handle).flush(),
            sync=lambda handle: self._file(handle).sync(),
            close=lambda handle: self._file(handle).close(),
        )
        mapping = _Mapping(nothing, nothing, nothing)
        system = self._table(
            _System,
            new_random_access_file=lambda _, path, handle: self._hand_out_reader(handle, Reader.of(_place(path))),
            new_writable_file=lambda _, path, handle: self._hand_out(handle, Writer(_place(path))),
            new_appendable_file=lambda _, path, handle: self._hand_out(handle, Writer(_place(path), appends=True)),
            create_dir=lambda _, path: _create(_place(path)),
            recursively_create_dir=lambda _, path: store.make_folder(_place(path)),
            delete_file=lambda _, path: store.remove(_place(path)),
            delete_dir=lambda _, path: store.remove_folder(_place(path)),
            delete_recursively=_remove_tree,
            rename_file=lambda _, source, target: store.move(_place(source), _place(target)),
            copy_file=lambda _, source, target: store.copy(_place(source), _place(target)),
            path_exists=lambda _, path: store.stat(_place(path)) and None,
            stat=self._stat,
            is_directory=lambda _, path: _check_folder(_place(path)),
            get_file_size=lambda _, path: store.stat(_place(path)).size,
            get_children=lambda _, path, found: self._list(store.names(_place(path)), found),
            get_matching_paths=lambda _, path, found: self._list(store.matching(path.decode()), found),
        )
        system.init = system.cleanup = system.flush_caches = nothing
        # Without a status to report to.
        translate = _Translates(lambda _, path: self._allocated(path))
        system.translate_name = translate
        self._kept += [reading, writing, mapping, system, translate]
        values: list[Any] = [self._allocated(b"s3")]
        for table in (system, reading, writing, mapping):
            values += [0, 0, ctypes.sizeof(table), self._allocated(bytes(table))]
        whole = self._allocated(bytes(_Table(*values)))
        free = ctypes.cast(self._libc.free, ctypes.c_void_p)
        malloc = ctypes.cast(self._libc.malloc, ctypes.c_void_p)
        info = _Info(1, whole, malloc, free)
        self._kept += [info, self]
        call.argtypes, call.restype = [ctypes.POINTER(_Info)], _Answer
        atexit.register(self._end)
        return int(call(ctypes.byref(info)).value)

    def _table(self, kind: Any, **functions: Callable[..., Any]) -> Any:
        """Makes a table of C functions; the last argument of each, the status, takes what they raise."""
        types: dict[str, Any] = dict(kind._fields_)
        made = {name: types[name](self._reporting(function, types[name])) for name, function in functions.items()}
        self._kept += made.values()
        return kind(**made)

    def _reporting(self, function: Callable[..., Any], kind: Any) -> Callable[..., Any]:
        result = kind._restype_
        without = None if result is None else -1 if result is not ctypes.c_bool else False
        if kind is _Cleanup:
            return function
        # Bound here: when Python ends, the names of a module go before C's last calls.
        clock, unavailable, set_status = time.monotonic, _UNAVAILABLE, self._set_status

        def reporting(*arguments: Any) -> Any:
            if self._ended:
                self._called = clock()
                set_status(arguments[-1], unavailable, b"")
                return without
            try:
                return function(*arguments[:-1])
            except OutOfRangeError as error:
                self._report(arguments[-1], _OUT_OF_RANGE, "reached the end of the file")
                return error.read
            except Exception as error:
                self._report(arguments[-1], *_code(error))
                return without
            except BaseException as error:  # of a signal; no exception may leave a function that C calls
                self._report(arguments[-1], _CANCELLED, f"interrupted by {type(error).__name__}")
                _raise_later(error)
                return without

        return reporting

    def _end(self) -> None:
        """Publishes what is still open: C calls these functions even when Python's modules are gone."""
        for file in list(self._open.values()):
            if isinstance(file, Writer):
                file.drop()
        self._ended, ending = True, time.monotonic()
        # Threads of C that read on: each must have had its error before Python ends, which would never return to it.
        self._called = ending
        while time.monotonic() < min(self._called + _QUIET_SECONDS, ending + _LONGEST_END_SECONDS):
            time.sleep(0.01)

    def _report(self, status: int, code: int, message: str) -> None:
        self._set_status(status, code, message.encode())

    def _hand_out(self, handle: Any, file: Any) -> None:
        number = next(self._numbers)
        self._open[number] = file
        handle[0] = number

    def _file(self, handle: Any) -> Any:
        return self._open[handle[0]]

    def _hand_out_reader(self, handle: Any, reader: Reader) -> None:
        number = self._readers.setdefault(reader, next(self._numbers))
        self._open[number] = reader
        handle[0] = number

    def _drop(self, handle: Any) -> None:
        file = self._open.pop(handle[0], None)
        if file is not None and not self._ended:
            try:
                file.drop()
            except BaseException as error:  # of a signal
                _raise_later(error)

    def _read(self, handle: Any, start: int, size: int, target: int) -> int:
        done = 0
        for piece in self._file(handle).pieces(start, size):
            ctypes.memmove(target + done, piece, len(piece))
            done += len(piece)
        if done < size:
            raise OutOfRangeError(done)
        return done

    def _append(self, handle: Any, source: int, size: int) -> None:
        self._file(handle).append(ctypes.string_at(source, size))

    @staticmethod
    def _stat(_: Any, path: bytes, target: Any) -> None:
        found = store.stat(_place(path))
        target[0] = _Statistics(found.size, found.changed_ns, found.is_folder)

    def _list(self, found: list[str], target: Any) -> int:
        size = ctypes.sizeof(ctypes.c_void_p)
        names = ctypes.cast(self._libc.malloc(max(1, len(found)) * size), _Names)
        for number, name in enumerate(found):
            names[number] = self._allocated(name.encode())
        target[0] = names
        return len(found)

    def _allocated(self, text: bytes) -> int:
        """Copies a text or a table to memory that TensorFlow frees."""
        place = self._libc.malloc(len(text) + 1)
        ctypes.memmove(place, text + b"\0", len(text) + 1)
        return int(place)


def _raise_later(error: BaseException) -> None:
    """Raises an exception of a signal once more when TensorFlow has returned: it may take an error for absence."""
    if threading.current_thread() is not threading.main_thread():
        return

    def again(*_: Any) -> None:
        # If this thread is in a function that C calls once more, that one raises it later again.
        signal.signal(_AGAIN, before)
        raise error

    before = signal.signal(_AGAIN, again)
    threading.Timer(0.01, signal.pthread_kill, (threading.get_ident(), _AGAIN)).start()


class _ExistsError(Exception):
    pass


def _place(path: bytes) -> Place:
    return Place.of(path.decode())


def _check_folder(place: Place) -> bool:
    """Raises for a file: TensorFlow asks the status, not the result."""
    if not store.stat(place).is_folder:
        raise RefusedError("NotAFolder", 412, f"{place} is no folder")
    return True


def _remove_tree(_: Any, path: bytes, files: Any, folders: Any) -> None:
    files[0] = folders[0] = 0  # left over
    store.remove_tree(_place(path))


def _create(place: Place) -> None:
    if store.is_folder(place):
        raise _ExistsError(f"{place} exists")
    store.make_folder(place)


def _code(error: Exception) -> tuple[int, str]:
    """Returns TensorFlow's code and the message of an error."""
    if isinstance(error, AbsentError):
        return _NOT_FOUND, str(error)
    if isinstance(error, RefusedError):
        return _REFUSALS.get(error.status, _UNAUTHENTICATED if "Credential" in error.code else _UNKNOWN), str(error)
    if isinstance(error, UnansweredError):
        return _UNAVAILABLE, str(error)
    if isinstance(error, _ExistsError):
        return _EXISTS, str(error)
    return _UNKNOWN, f"{type(error).__name__}: {error}"
