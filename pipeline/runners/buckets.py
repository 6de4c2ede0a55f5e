"""Buckets: existence checks, one machine at a time, and ML Metadata's database in a bucket."""

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
from tfx_estimator.components.trainer.stored_claims import account_of
from tfx_estimator.components.trainer.training_claim import claimed
from tfx_estimator.pipeline.base.errors import PipelineError, TrainingError
from tfx_estimator.pipeline.base.files import write_whole
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.base.s3 import SCHEME
from tfx_estimator.pipeline.folders import METADATA, PipelineFolders, relocate_artifacts

_SCHEMES = ("gs://", SCHEME)


def check_buckets(addresses: Iterable[Optional[str]]) -> None:
    """Checks that buckets exist: TensorFlow's client of gs:// would retry a missing one without limit.

    Args:
        addresses: None and other addresses are ignored.

    Raises:
        PipelineError: One does not exist, or cannot be reached.
    """
    stored = [address.split("/", 3) for address in addresses if address and address.startswith(_SCHEMES)]
    for bucket in dict.fromkeys("/".join(parts[:3]) for parts in stored):
        # An account that may use the objects need not have access to the bucket itself.
        with reached(bucket), contextlib.suppress(tf.errors.PermissionDeniedError):
            if not fileio.exists(f"{bucket}/"):
                raise _unusable(bucket, "there is no such bucket")


@contextlib.contextmanager
def only_machine(folders: PipelineFolders) -> Iterator[None]:
    """Locks out other machines from a pipeline for the context.

    Raises:
        PipelineError: Another machine holds the lock, or the store cannot be read or written.
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
    """Converts errors of the context to one that names the folder.

    Raises:
        PipelineError: The folder cannot be read or written.
    """
    try:
        yield
    except (tf.errors.OpError, OSError) as error:
        raise _unusable(folder, getattr(error, "message", error)) from error


def _unusable(folder: str, reason: object) -> PipelineError:
    return PipelineError(
        f"{folder} cannot be used: {reason}",
        expected="an existing bucket that this account may read and write",
        todo=f"check the bucket, and {account_of(folder)}; then run it again",
    )


logger = get_logger("run")


class StoredMetadata:
    """The database of one pipeline, with a copy in its bucket."""

    def __init__(self, folders: PipelineFolders) -> None:
        self._folders = folders
        self._here = folders.metadata
        self._stored = os.path.join(folders.home, METADATA)
        # The hash of the last synchronized copy.
        self._mark = f"{self._here}.stored"

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Locks the pipeline and fetches its database, for a run.

        Raises:
            PipelineError: Another machine runs this pipeline, or the store or the database cannot be read or written.
        """
        with only_machine(self._folders):
            self.fetch()
            # The folder may be a copy of another one, which may still be in use.
            relocate_artifacts(self._here, self._folders.home)
            yield

    def fetch(self) -> None:
        """Updates the local database to that of the last run on any machine.

        Raises:
            PipelineError: The store cannot be read or written.
        """
        with reached(self._folders.home):
            fileio.makedirs(self._folders.home)
            stored = self._read_stored()
        last = self._read_mark()
        if stored is None:
            # The stored database was removed with the artifacts: the user wants to start over.
            _remove(self._here, *_journals(self._here), self._mark)
        elif _hash(stored) != last:
            if last:
                logger.info(f"another machine has run this pipeline since: fetching {self._stored}")
            # SQLite would apply the journal of a killed run to the new database.
            _remove(*_journals(self._here))
            write_whole(self._here, stored)
            self._write_mark(stored)
        # Otherwise the local database stays: a killed run may have had no time to store its last state.

    def store(self) -> None:
        """Stores a copy of the local database, if it has changed.

        Raises:
            PipelineError: The store cannot be written, or its copy was changed by another machine.
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
                    f"{self._stored} was changed or removed while this run used it",
                    expected="one run of a pipeline at a time",
                    todo="wait until no other run uses it; then run it again",
                )
            store_whole(self._stored, content)
        self._write_mark(content)

    def _consistent(self) -> bytes:
        """Returns a consistent copy of the database."""
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
        if not fileio.exists(self._stored):
            return None
        with fileio.open(self._stored, "rb") as file:
            return file.read()

    def _read_mark(self) -> str:
        try:
            with open(self._mark, encoding="ascii", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def _write_mark(self, content: bytes) -> None:
        write_whole(self._mark, _hash(content))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _journals(database: str) -> list[str]:
    """Returns the paths of the files that SQLite has next to a database during a transaction."""
    return [f"{database}-{name}" for name in ("journal", "wal", "shm")]


def _remove(*paths: str) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
