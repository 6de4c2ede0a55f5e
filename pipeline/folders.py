"""A pipeline's folders, their locks, and folders that were moved or copied.

After a move, ML Metadata still has the artifacts' former URIs. If the former folder has new runs, TFX would use their
artifacts, and push, compare or report another model without an error.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from tfx_estimator.pipeline.base import lock
from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.base.files import make_dated
from tfx_estimator.pipeline.base.log import STAYS, get_logger
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.paths import is_address

if TYPE_CHECKING:
    from ml_metadata import metadata_store

METADATA = "metadata.sqlite"
# Artifacts with URIs outside, each with the executions that wrote it, or found it in the cache. 4 is OUTPUT.
_ELSEWHERE = """
    SELECT DISTINCT Artifact.uri, Context.name, EventPath.step_key, Event.execution_id
    FROM Artifact
    JOIN Event ON Event.artifact_id = Artifact.id AND Event.type = 4
    JOIN EventPath ON EventPath.event_id = Event.id AND NOT EventPath.is_index_step
    JOIN Association ON Association.execution_id = Event.execution_id
    JOIN Context ON Context.id = Association.context_id
    JOIN Type ON Type.id = Context.type_id AND Type.name = 'node'
    WHERE substr(Artifact.uri, 1, length(:inside)) != :inside
"""
# An artifact's time of last update is not changed: in a folder that is moved back, TFX's cache keys are as before.
_RENAME = "UPDATE Artifact SET uri = :here WHERE uri = :there"
# `pushed_destination` of a pushed model, `current_model` of a blessing, and the like.
_RENAME_PROPERTIES = """
    UPDATE ArtifactProperty SET string_value = :home || substr(string_value, length(:former) + 1)
    WHERE substr(string_value, 1, length(:former) + 1) = :former || '/'
"""

# The URIs that TFX gives to an execution's outputs.
_MADE = re.compile(r"(?s)(?P<home>.+)/artifacts/(?P<node>[^/]+)/(?P<key>[^/]+)/(?P<number>[0-9]{1,18})(/.*)?")

logger = get_logger("run")


@dataclass(frozen=True)
class PipelineFolders:
    """A pipeline's folders.

    Args:
        workdir: Folder of all runs, or an address in an object store.
        name: The pipeline's name, as declared.
        option: The command line's option of `workdir`, for error messages.
    """

    workdir: str
    name: str
    option: str = "--workdir"

    @property
    def is_stored(self) -> bool:
        """True if the artifacts are in an object store."""
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
        """Local folder of the database, locks and logs, which cannot be used in an object store."""
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
    def schema(self) -> str:
        """The kept schema of a table."""
        return os.path.join(self.home, "schema.pbtxt")

    @property
    def serving(self) -> str:
        """Destination of blessed models."""
        return os.path.join(self.home, "serving")

    @property
    def logs(self) -> str:
        """Logs of the runs."""
        return os.path.join(self.local, "logs")

    def make_logs(self) -> str:
        """Makes the folder for the logs of a new run."""
        return make_dated(self.logs)


@contextlib.contextmanager
def only_run(folders: PipelineFolders) -> Iterator[None]:
    """Refuses a second run of a pipeline at the same time: both would write one database and one training folder.

    For the lock of a lost machine, and a file system without locks, see `lock.take_for_run`.
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


def relocate_artifacts(database: str, home: str) -> None:
    """Updates the artifacts' URIs in ML Metadata after their folder was moved, in one transaction; logs it.

    The URIs of missing artifacts are updated, too, so that TFX recreates them: at the former URI there may be another
    artifact.

    Args:
        database: The file of ML Metadata, locked by the caller; it may be missing.
        home: The pipeline's folder, or its address in a store.
    """
    if not os.path.exists(database):
        return
    try:
        with contextlib.closing(sqlite3.connect(database)) as connection, connection:
            # Fails now if another process keeps the database locked, where TFX would fail later.
            connection.execute("BEGIN IMMEDIATE")
            formers = _find_formers(connection, home)
            for uri, former in formers.items():
                connection.execute(_RENAME, {"there": uri, "here": rebased(uri, former, home)})
            for former in (homes := set(formers.values())):
                connection.execute(_RENAME_PROPERTIES, {"former": former, "home": home})
    except sqlite3.Error as error:
        if "is locked" in str(error):
            raise lock.in_use(database) from error
        raise PipelineError(
            f"{database} cannot be used: {error}",
            expected="ML Metadata's database, readable and writable",
            todo="free space there, or check its permissions; if it is damaged, remove it: every component runs again",
        ) from error
    log_moved(sorted(homes), home)


def uris_here(database: str, home: str) -> dict[str, str]:
    """Returns the current URIs of a moved folder's artifacts by their URIs in ML Metadata, which is not changed."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return {uri: rebased(uri, former, home) for uri, former in _find_formers(connection, home).items()}


def former_home(uri: str, place: str, home: str) -> str:
    """Returns the former folder of a pipeline whose URI ends with `place`, a regular expression.

    Empty if it is the current folder, also by another name, or if the URI does not match.
    """
    found = re.fullmatch(rf"(?s)(.+)/{place}(/.*)?", uri)
    return found[1] if found and not _is_same(found[1], home) else ""


def rebased(path: str, former: str, home: str) -> str:
    """Returns a path with the former folder replaced by the current one; other paths are unchanged."""
    return home + path[len(former) :] if path.startswith(f"{former}/") else path


def log_moved(formers: Iterable[str], home: str) -> None:
    """Logs a line for each former folder."""
    for former in formers:
        text = f"{one_line(home)} was moved or copied from {one_line(former)}: its artifacts are used from here"
        logger.info(text, extra=STAYS)


def _find_formers(connection: sqlite3.Connection, home: str) -> dict[str, str]:
    """Returns the former folders of artifacts by their URIs."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'Artifact'").fetchone():
        return {}
    formers: dict[str, str] = {}
    same: dict[str, bool] = {}
    for uri, node, key, number in connection.execute(_ELSEWHERE, {"inside": f"{home}/"}):
        # Only outputs of this execution: artifacts imported from another pipeline's folder are not moved.
        found = _MADE.fullmatch(uri)
        if not found or (found["key"], int(found["number"])) != (key, number) or not node.endswith(f".{found['node']}"):
            continue
        former = found["home"]
        if former not in same:
            same[former] = _is_same(former, home)
        if not same[former]:
            formers[uri] = former
    return formers


def _is_same(former: str, home: str) -> bool:
    """Returns True if both are one folder, also by a link or another mount."""
    if is_address(former) or is_address(home):
        return former == home
    with contextlib.suppress(OSError):
        return os.path.samefile(former, home)
    return os.path.realpath(former) == os.path.realpath(home)


def open_store(database: str) -> metadata_store.MetadataStore:
    """Opens an SQLite database of ML Metadata."""
    from ml_metadata import metadata_store
    from ml_metadata.proto import metadata_store_pb2

    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = database
    config.sqlite.connection_mode = metadata_store_pb2.SqliteMetadataSourceConfig.READWRITE
    return metadata_store.MetadataStore(config)
