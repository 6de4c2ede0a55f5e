"""Where a pipeline keeps what it makes, who may write there, and a folder that was moved or copied.

Of that, ML Metadata still names the artifacts where they lay before. With runs at that former place again, TFX would
take the artifacts of those for its own, and push, compare or report another model without a word.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

from tfx_estimator.pipeline.base import lock
from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.base.files import make_dated
from tfx_estimator.pipeline.base.log import STAYS, get_logger
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.paths import is_address

METADATA = "metadata.sqlite"
# Artifacts that are named elsewhere, each with the executions that wrote it, or found it in the cache. 4 is OUTPUT.
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
# The time of an artifact's last change stays as it is: in a folder that is moved back, TFX's cache keys are what they
# were.
_RENAME = "UPDATE Artifact SET uri = :here WHERE uri = :there"
# `pushed_destination` of a pushed model, `current_model` of a blessing, and the like.
_RENAME_PROPERTIES = """
    UPDATE ArtifactProperty SET string_value = :home || substr(string_value, length(:former) + 1)
    WHERE substr(string_value, 1, length(:former) + 1) = :former || '/'
"""

# Where TFX lets an execution write.
_MADE = re.compile(r"(?s)(?P<home>.+)/artifacts/(?P<node>[^/]+)/(?P<key>[^/]+)/(?P<number>[0-9]{1,18})(/.*)?")

logger = get_logger("run")


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


def name_artifacts_here(database: str, home: str) -> None:
    """Has ML Metadata name the artifacts of a moved folder where they lie now, all or none; and says so.

    One that is missing here is renamed as well: TFX sees that it has gone, and makes it anew. Under its former name it
    might find another.

    Args:
        database: The file of ML Metadata, which nobody else writes meanwhile; it need not be there.
        home: The pipeline's folder, or its address in a store.
    """
    if not os.path.exists(database):
        return
    try:
        with contextlib.closing(sqlite3.connect(database)) as connection, connection:
            # Where another process reads or writes for long, TFX would fail in the middle.
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
            todo="make room there, or see to its permissions; if it is damaged, remove it: all is made anew",
        ) from error
    tell_moved(sorted(homes), home)


def uris_here(database: str, home: str) -> dict[str, str]:
    """Returns where the artifacts of a moved folder lie now, by the URI that ML Metadata knows, and writes nothing."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return {uri: rebased(uri, former, home) for uri, former in _find_formers(connection, home).items()}


def former_home(uri: str, place: str, home: str) -> str:
    """Tells in which other folder something lay that a pipeline made in its own, at a place (a regular expression).

    Empty if it is this one, by whatever name, or something else altogether.
    """
    found = re.fullmatch(rf"(?s)(.+)/{place}(/.*)?", uri)
    return found[1] if found and not _is_same(found[1], home) else ""


def rebased(path: str, former: str, home: str) -> str:
    """Returns a path in the former folder as one in this; any other as it is."""
    return home + path[len(former) :] if path.startswith(f"{former}/") else path


def tell_moved(formers: Iterable[str], home: str) -> None:
    """Tells the user, in a line for each former folder."""
    for former in formers:
        said = f"{one_line(home)} was moved or copied from {one_line(former)}: its artifacts are looked for here"
        logger.info(said, extra=STAYS)


def _find_formers(connection: sqlite3.Connection, home: str) -> dict[str, str]:
    """The folder in which each artifact was made, by its URI, if that was not this one."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'Artifact'").fetchone():
        return {}
    formers: dict[str, str] = {}
    same: dict[str, bool] = {}
    for uri, node, key, number in connection.execute(_ELSEWHERE, {"inside": f"{home}/"}):
        # Where TFX lets this very execution write. What somebody imports from another pipeline's folder stays there.
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
    """Is it one folder, for a link that leads there too: what is found by either is the same."""
    if is_address(former) or is_address(home):
        return former == home
    # By two mounts, too.
    with contextlib.suppress(OSError):
        return os.path.samefile(former, home)
    return os.path.realpath(former) == os.path.realpath(home)
