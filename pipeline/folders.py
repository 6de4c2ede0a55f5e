"""Where a pipeline keeps what it makes, and who may write there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from tfx_estimator.pipeline.base import lock
from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.base.files import make_dated
from tfx_estimator.pipeline.config.paths import is_address

METADATA = "metadata.sqlite"


@dataclass(frozen=True)
class PipelineFolders:
    """Where a pipeline keeps what it makes.

    Args:
        workdir: Folder of all runs; an address of object storage is kept as it is.
        name: The pipeline's name: that of its declaration.
        option: By which the user named `workdir` on the command line: errors say what to change.
    """

    workdir: str
    name: str
    option: str = "--workdir"

    @property
    def is_stored(self) -> bool:
        """Does an object store keep the artifacts."""
        return is_address(self.workdir)

    @property
    def home(self) -> str:
        """Folder of this pipeline."""
        return os.path.join(self.workdir if self.is_stored else os.path.abspath(self.workdir), self.name)

    @property
    def root(self) -> str:
        """TFX's pipeline_root: the artifacts."""
        return os.path.join(self.home, "artifacts")

    @property
    def local(self) -> str:
        """Folder of this machine for what no object store can hold while it is in use: the database, locks, logs."""
        if not self.is_stored:
            return self.home
        state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
        place = self.workdir.replace("://", os.sep).strip(os.sep)
        return os.path.join(os.path.abspath(state), "tfx-estimator", place, self.name)

    @property
    def metadata(self) -> str:
        """The ML Metadata database."""
        return os.path.join(self.local, METADATA)

    @property
    def serving(self) -> str:
        """Where blessed models are pushed."""
        return os.path.join(self.home, "serving")

    @property
    def logs(self) -> str:
        """Logs of the runs."""
        return os.path.join(self.local, "logs")

    def make_logs(self) -> str:
        """Makes the folder for the logs of a run that begins now."""
        return make_dated(self.logs)


@contextlib.contextmanager
def only_run(folders: PipelineFolders) -> Iterator[None]:
    """Refuses a second run of a pipeline at the same time: both would write one database and one training folder.

    For the lock of a machine that was lost, and a file system without locks, see `lock.take_for_run`.

    Raises:
        PipelineError: Another run goes on, or the folder cannot be written.
    """
    with _lock_file(folders) as file:
        fd = file.fileno()
        if lock.take_for_run(lambda: None if lock.try_lock(fd) is False else fd, file.name, folders.home) is None:
            raise _in_use(folders, file.name)
        yield


def _in_use(folders: PipelineFolders, path: str) -> PipelineError:
    error = PipelineError(
        f"another run is using {folders.home}",
        expected="one run at a time",
        todo=f"wait for it, or name another {folders.option}; {lock.if_lost(path)}",
    )
    error.retryable = True
    return error


def _lock_file(folders: PipelineFolders) -> IO[str]:
    try:
        os.makedirs(folders.local, exist_ok=True)
        return open(os.path.join(folders.local, ".lock"), "w", encoding="utf-8")
    except OSError as error:
        raise PipelineError(
            f"cannot write to {folders.local}: {error.strerror}",
            expected="a folder that can be written",
            todo="set XDG_STATE_HOME to one" if folders.is_stored else f"name another {folders.option}",
        ) from error
