"""ML Metadata's database of a pipeline whose artifacts lie in an object store: used here, kept there.

SQLite needs a file of this machine. A copy lies beside the artifacts, so that a run on another machine knows of them,
and never takes the number of an execution whose artifacts are there already. The store has no locks: a claim keeps a
run on another machine out.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Iterator

from tfx.dsl.io import fileio

from tfx_estimator.components.files import write_whole as store_whole
from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.base.files import write_whole
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.folders import METADATA, PipelineFolders, name_artifacts_here
from tfx_estimator.pipeline.runners.buckets import only_machine, reached

logger = get_logger("run")


class StoredMetadata:
    """The database of one pipeline."""

    def __init__(self, folders: PipelineFolders) -> None:
        self._folders = folders
        self._here = folders.metadata
        self._there = os.path.join(folders.home, METADATA)
        # Holds the hash of the copy that both had last.
        self._mark = f"{self._here}.stored"

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Fetches it, for a run that nobody else does as long as the context lasts.

        Raises:
            PipelineError: Another machine runs this pipeline, or the store or the database cannot be read or written.
        """
        with only_machine(self._folders):
            self.fetch()
            # The folder in the store may have been copied there from another place, which may be used still.
            name_artifacts_here(self._here, self._folders.home)
            yield

    def fetch(self) -> None:
        """Makes the database here that of the last run, on whatever machine it was.

        Raises:
            PipelineError: The store cannot be read or written.
        """
        with reached(self._folders.home):
            fileio.makedirs(self._folders.home)
            stored = self._read_stored()
        last = self._read_mark()
        if stored is None:
            # The database in the store went with the artifacts: whoever removes a folder of runs wants to begin anew.
            _remove(self._here, *_journals(self._here), self._mark)
        elif _hash(stored) != last:
            if last:
                logger.info(f"another machine has run this pipeline since: {self._there} is taken from there")
            # SQLite would play back into the new database what a killed run began in the old one.
            _remove(*_journals(self._here))
            write_whole(self._here, stored)
            self._write_mark(stored)
        # Otherwise the local database is kept: a killed run may have noted there what it had no time to store.

    def store(self) -> None:
        """Keeps a copy.

        Raises:
            PipelineError: The store cannot be written, or holds what somebody else has put there since.
        """
        if not os.path.exists(self._here):
            return
        content, last = self._consistent(), self._read_mark()
        if _hash(content) == last:
            return
        with reached(self._folders.home):
            stored = self._read_stored()
            if (_hash(stored) if stored is not None else "") != last:
                raise PipelineError(
                    f"{self._there} was changed or removed while this run used it",
                    expected="one run of a pipeline at a time",
                    todo="wait until nobody else runs it; then run it again",
                )
            store_whole(self._there, content)
        self._write_mark(content)

    def _consistent(self) -> bytes:
        """The database as of a moment between two transactions."""
        draft = f"{self._here}.copy"
        _remove(draft, *_journals(draft))
        try:
            source, target = sqlite3.connect(self._here), sqlite3.connect(draft)
            with contextlib.closing(source), contextlib.closing(target):
                source.backup(target)
            with open(draft, "rb") as file:
                return file.read()
        finally:
            _remove(draft)

    def _read_stored(self) -> bytes | None:
        if not fileio.exists(self._there):
            return None
        with fileio.open(self._there, "rb") as file:
            return file.read()

    def _read_mark(self) -> str:
        try:
            with open(self._mark, encoding="ascii") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def _write_mark(self, content: bytes) -> None:
        write_whole(self._mark, _hash(content))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _journals(database: str) -> list[str]:
    """What SQLite keeps beside a database as long as a transaction is open."""
    return [f"{database}-{name}" for name in ("journal", "wal", "shm")]


def _remove(*paths: str) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
