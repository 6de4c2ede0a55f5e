"""Buckets that a run uses, by one machine at a time; and ML Metadata's database, where it is kept in one."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Optional

import tensorflow as tf
from tfx.dsl.io import fileio

from tfx_estimator.components.files import write_whole as store_whole
from tfx_estimator.components.trainer.training_claim import claimed
from tfx_estimator.pipeline.base.errors import PipelineError, TrainingError
from tfx_estimator.pipeline.base.files import write_whole
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.folders import METADATA, PipelineFolders, name_artifacts_here

_SCHEME = "gs://"


def check_buckets(addresses: Iterable[Optional[str]]) -> None:
    """Checks that buckets are there: TensorFlow's client would look for one that is not without end.

    Args:
        addresses: Those of other places, and None, are left alone.

    Raises:
        PipelineError: One is not there, or cannot be asked for.
    """
    stored = [each for each in addresses if each and each.startswith(_SCHEME)]
    for name in dict.fromkeys(each.removeprefix(_SCHEME).partition("/")[0] for each in stored):
        bucket = f"{_SCHEME}{name}"
        # Who may use its objects need not be allowed to look at the bucket.
        with reached(bucket), contextlib.suppress(tf.errors.PermissionDeniedError):
            if not fileio.exists(f"{bucket}/"):
                raise _unusable(bucket, "there is no such bucket")


@contextlib.contextmanager
def only_machine(folders: PipelineFolders) -> Iterator[None]:
    """Refuses what another machine would do to a pipeline as long as the context lasts.

    Raises:
        PipelineError: Another machine works there, or the store cannot be read or written.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(claimed(folders.home))
        except TrainingError as error:
            raise PipelineError(
                f"another machine is using {folders.home}: {error.what}",
                expected="one run at a time",
                todo=f"wait for it, or name another {folders.option}",
            ) from error
        yield


@contextlib.contextmanager
def reached(folder: str) -> Iterator[None]:
    """Says which folder it is that cannot be read or written.

    Raises:
        PipelineError: The context cannot use it.
    """
    try:
        yield
    except (tf.errors.OpError, OSError) as error:
        raise _unusable(folder, getattr(error, "message", error)) from error


def _unusable(folder: str, reason: object) -> PipelineError:
    return PipelineError(
        f"{folder} cannot be used: {reason}",
        expected="a bucket that is there, and that this account may read and write",
        todo="see that it is, and `gcloud auth application-default login`; then run it again",
    )


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
