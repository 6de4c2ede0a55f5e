"""Runs a verb of the command line in a subprocess, for a function call.

A run equals `tfx-estimator run`. The notebook's state does not affect it, and its modules, or a crash, do not affect
the notebook: TensorFlow's memory and the GPUs are freed, and edited modules are read again. The kernel kills the
process if its caller dies.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Optional

from tfx_estimator.pipeline.base import caller, errors
from tfx_estimator.pipeline.base.ending import keeper
from tfx_estimator.pipeline.base.files import read_tail
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.yaml_text import inline
from tfx_estimator.pipeline.python.progress import Line, in_notebook
from tfx_estimator.pipeline.user_source.modules import package_parent

_TICK_SECONDS = 0.5
_PIECE = 1 << 16
_LOG_LINES = 20
_MAIN = (
    "import sys; sys.path[0] = {package!a}; import tfx_estimator; sys.path[:] = {path!a}; "
    "from tfx_estimator.__main__ import main; sys.exit(main())"
)


def call(words: Sequence[str], progress: bool) -> str:
    """Runs a verb of the command line; returns the folder of its results, empty if there is none.

    Args:
        words: The verb and its arguments.
        progress: Whether to show progress: in a notebook as one updated line, elsewhere on stderr.

    Raises:
        TfxEstimatorError: The verb's error; its `folder` has the results so far.
        KeyboardInterrupt: Ctrl-C, or a notebook's button, stopped it; it has cleaned up.
    """
    with contextlib.ExitStack() as stack:
        line = stack.enter_context(Line(words[0])) if progress and in_notebook() else None
        output = stack.enter_context(_output(shows=progress and line is None))
        reader, writer = os.pipe()
        stack.callback(os.close, reader)
        try:
            process = _start(words, output, writer)
        finally:
            os.close(writer)
        verb = _Verb(process, reader, output, line, copies=progress and line is None and output is not sys.stderr)
        try:
            return verb.wait()
        except KeyboardInterrupt:
            raise KeyboardInterrupt(verb.interrupt()) from None
        finally:
            process.kill()
            process.wait()


def set_words(overrides: Any, option: str = "--set") -> list[str]:
    """Returns the arguments that set values by dotted path; a text, or several, as on the command line."""
    if not isinstance(overrides, Mapping):
        return [word for text in texts(option, overrides) for word in (option, text)]
    write = listed if option == "--vary" else lambda key, value: inline(plain(key, value))
    return [word for key, value in overrides.items() for word in (option, f"{key}={write(key, value)}")]


def listed(name: str, value: Any) -> str:
    """Returns values as the command line lists them; a text is such a list already."""
    value = plain(name, value)
    return value if isinstance(value, str) else inline(value)[1:-1] if isinstance(value, list) else inline(value)


def texts(name: str, value: Any) -> list[str]:
    """Returns a text or path, or several of any depth, as a list; None is an empty one."""
    value = plain(name, () if value is None else value)
    if isinstance(value, (str, list)):
        return [value] if isinstance(value, str) else [text for each in value for text in texts(name, each)]
    raise _refused(name, value, "a text or path, or several")


def plain(name: str, value: Any) -> Any:
    """Returns a value as YAML has it, without the types of numpy, paths and iterators; an error gives its name."""
    value = value.tolist() if hasattr(value, "tolist") else value  # numpy and pandas, also single numbers
    for kind in (bool, int, float):
        if isinstance(value, kind):
            return kind(value)
    if value is None or isinstance(value, (str, bytes, os.PathLike)):
        return value if value is None else os.fsdecode(value)
    if isinstance(value, Mapping):
        return {plain(name, key): plain(name, each) for key, each in value.items()}
    if isinstance(value, Iterable):
        return [plain(name, each) for each in value]
    raise _refused(name, value, "numbers, texts, paths, and lists or mappings of them")


def _refused(name: str, value: Any, expected: str) -> errors.DeclarationError:
    what = f"{name}: {one_line(repr(value))[:80]}, of type {type(value).__name__}"
    return errors.DeclarationError(what, expected=expected, todo="convert it")


def _start(words: Sequence[str], output: IO, writer: int) -> subprocess.Popen:
    # As on the command line, modules of the current folder do not hide others.
    path = [each for each in sys.path if isinstance(each, str) and each not in ("", os.getcwd())]
    command = [sys.executable, "-c", _MAIN.format(package=str(package_parent()), path=path), *words]
    return subprocess.Popen(
        keeper.dying_with_this(command),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env={**os.environ, caller.VARIABLE: str(writer)},
        pass_fds=[writer],
        # Ctrl-C reaches only this process, which forwards it.
        start_new_session=True,
    )


@contextlib.contextmanager
def _output(shows: bool) -> Iterator[IO]:
    """Yields the file that the verb prints to: stderr, or a temporary file if stderr is replaced or not shown."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        if shows and sys.stderr.fileno() >= 0:
            sys.stderr.flush()
            yield sys.stderr
            return
    with tempfile.NamedTemporaryFile() as file:
        yield file


class _Verb:
    """A running verb."""

    def __init__(self, process: subprocess.Popen, reader: int, output: IO, line: Optional[Line], copies: bool) -> None:
        self._process, self._reader, self._output, self._line = process, reader, output, line
        self._copies, self._copied, self._rest = copies, 0, b""
        self._text = codecs.getincrementaldecoder("utf-8")("replace")
        self._fields: dict[str, Any] = {}

    def wait(self) -> str:
        """Waits for its end; returns the folder of its results."""
        while (ended := self._process.poll()) is None or self._receive(0):
            self._receive(0 if ended is not None else _TICK_SECONDS)
            self._show()
        self._show()
        folder = self._fields.get(caller.FOLDER, "")
        if self._process.returncode:
            error = self._failure()
            error.folder = folder
            raise error
        return folder

    def interrupt(self) -> str:
        """Interrupts it, and again on a second Ctrl-C, and waits for its end; returns its message."""
        for _ in range(2):
            self._process.send_signal(signal.SIGINT)
            try:
                self.wait()
            except KeyboardInterrupt:
                continue
            except errors.TfxEstimatorError as error:
                return str(error)
            break
        return "interrupted"

    def _receive(self, seconds: float) -> bool:
        """Reads fields from the pipe; returns whether any arrived within the timeout."""
        piece = os.read(self._reader, _PIECE) if select.select([self._reader], [], [], seconds)[0] else b""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for each in map(json.loads, lines):
            self._fields.update(each)
        return bool(piece)

    def _show(self) -> None:
        if self._line:
            self._line.show(self._fields.get(caller.MOVING, ""))
        elif self._copies:
            with open(self._output.name, "rb") as file:
                file.seek(self._copied)
                sys.stderr.write(self._text.decode(piece := file.read()))
            self._copied += len(piece)

    def _failure(self) -> errors.TfxEstimatorError:
        """Returns the verb's error, or one with the end of its output."""
        if (text := self._fields.get(caller.ERROR)) and (error := errors.from_json(text)):
            return error
        tail = "" if self._output is sys.stderr else "\n".join(read_tail(self._output.name, _LOG_LINES))
        return errors.PipelineError(
            f"the process of the call ended with exit code {self._process.returncode}\n{tail}".rstrip(),
            expected="a process that ends without a crash",
            todo="run the same on the command line; finished components come from the cache",
        )
