"""A pipeline's folder that was moved or copied: ML Metadata still names its artifacts where they lay before.

With runs at that former place again, TFX would take the artifacts of those for its own, and push, compare or report
another model without a word. Imports no TensorFlow.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterable

from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.base.lock import in_use
from tfx_estimator.pipeline.base.log import STAYS, get_logger
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.paths import is_address

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


def name_artifacts_here(database: str, home: str) -> None:
    """Has ML Metadata name the artifacts of a moved folder where they lie now, all or none; and says so.

    One that is missing here is renamed as well: TFX sees that it has gone, and makes it anew. Under its former name it
    might find another.

    Args:
        database: The file of ML Metadata, which nobody else writes meanwhile; it need not be there.
        home: The pipeline's folder, or its address in a store.

    Raises:
        PipelineError: The database cannot be read or written, or another process has locked it.
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
            raise in_use(database) from error
        raise PipelineError(
            f"{database} cannot be used: {error}",
            expected="ML Metadata's database, readable and writable",
            todo="make room there, or see to its permissions; if it is damaged, remove it: all is made anew",
        ) from error
    tell_moved(sorted(homes), home)


def uris_here(database: str, home: str) -> dict[str, str]:
    """Finds the artifacts of a moved folder where they lie now, and writes nothing.

    Args:
        database: As of `name_artifacts_here`.

    Returns:
        Where they lie, by the URI that ML Metadata knows; without those that it knows where they are.

    Raises:
        sqlite3.Error: The database cannot be read.
    """
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return {uri: rebased(uri, former, home) for uri, former in _find_formers(connection, home).items()}


def former_home(uri: str, place: str, home: str) -> str:
    """Tells in which other folder something lay that a pipeline made in its own.

    Args:
        uri: Where it lay then.
        place: A regular expression of where it lies in a pipeline's folder.

    Returns:
        The other folder; empty if it is this one, by whatever name, or something else altogether.
    """
    found = re.fullmatch(rf"(?s)(.+)/{place}(/.*)?", uri)
    return found[1] if found and not _is_same(found[1], home) else ""


def rebased(path: str, former: str, home: str) -> str:
    """Returns a path in the former folder as one in this; any other as it is."""
    return home + path[len(former) :] if path.startswith(f"{former}/") else path


def tell_moved(formers: Iterable[str], home: str) -> None:
    """Tells the user, in a line for each former folder.

    Args:
        formers: Where the pipeline's folder was.
        home: Where it is.
    """
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
