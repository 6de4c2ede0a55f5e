"""Finds why a component was not cached: the differences from its last successful execution."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Optional

from ml_metadata.proto import metadata_store_pb2
from tfx import types
from tfx.dsl.io import fileio
from tfx.types import artifact_utils

from tfx_estimator.components import inventory, read_files
from tfx_estimator.components.tuner.executor import TUNE_KEY
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config import Loaded
from tfx_estimator.pipeline.config.section import Section
from tfx_estimator.pipeline.config.yaml_text import leaves
from tfx_estimator.pipeline.folders import PipelineFolders, open_store
from tfx_estimator.pipeline.report.artifacts import properties_of
from tfx_estimator.pipeline.report.source import Run, log_folders, read_run
from tfx_estimator.pipeline.runners.listener import NodeRun
from tfx_estimator.pipeline.user_source import parts

FIRST = "first run"
# Components whose cache key depends on a section of the declaration that is not spelled out in their properties.
_SECTIONS = {
    "TfdsExampleGen": "data",
    "CsvExampleGen": "data",
    "ImportExampleGen": "data",
    "ParquetExampleGen": "data",
    "Transform": "transform",
    "Evaluator": "evaluator",
    "Pusher": "pusher",
}
_DECLARED, _SOURCE, _DATA, _WHEEL, _FILES = "declaration", "source", "fingerprint", "module_path", "files"
_DONE = (metadata_store_pb2.Execution.COMPLETE, metadata_store_pb2.Execution.CACHED)
_MOST, _LONGEST = 3, 60
# Path of a property -> its old and new value.
Changes = Mapping[tuple[str, ...], tuple[Any, Any]]


class Why:
    """Returns the reason for each component that ran.

    Args:
        folders: The pipeline's, locked by this run.
        loaded: The running declaration.
    """

    def __init__(self, folders: PipelineFolders, loaded: Loaded) -> None:
        self._folders, self._declaration, self._rerun = folders, loaded.declaration, loaded.rerun
        self._sources = os.path.join(folders.local, ".sources")
        parts.save(self._sources)

    def __call__(self, run: NodeRun) -> str:
        """Returns the reason; empty if unknown."""
        store = open_store(self._folders.metadata)
        context = store.get_context_by_type_and_name("node", f"{self._folders.name}.{run.node}")
        executions = {each.id: each for each in store.get_executions_by_context(context.id)} if context else {}
        if (now := executions.get(run.execution_id or 0)) is None:
            return ""
        done = [each.id for each in executions.values() if each.id < now.id and each.last_known_state in _DONE]
        if not done:
            return FIRST
        last, last_run = self._last(run.node, done)
        # A cached execution has the component's properties in ML Metadata, without its driver's changes.
        before = executions[_writer(store, last)]
        changed = _differences(before, now)
        made = list(_made(store, before.id))
        read = [text for artifact in made for text in read_files.changes_of(artifact)]
        reasons = [*self._changed(run.node, last_run, changed), *read, *_new_inputs(store, before.id, now.id)]
        reasons += ["--rerun"] if run.node in self._rerun else []
        reasons = reasons or _other(changed) or _damage(made) or self._declared("beam", last_run)
        return "; ".join([*reasons[:_MOST], *([f"{len(reasons) - _MOST} more"] if len(reasons) > _MOST else [])])

    def _last(self, node: str, done: list[int]) -> tuple[int, Optional[Run]]:
        """Returns the last execution that a run has logged, and that run; others in the database are of `compare`."""
        for logs in reversed(log_folders(self._folders.logs)):
            with contextlib.suppress(OSError, ValueError):
                run = read_run(logs)
                for each in run.summary.get("components", ()):
                    if each["node"] == node and each.get("execution_id") in done:
                        return each["execution_id"], run
        return max(done), None

    def _changed(self, node: str, before: Optional[Run], changed: Changes) -> list[str]:
        """Returns the changes of the declaration, the source and the data."""
        declared = {path[path.index(_DECLARED) + 1 :]: both for path, both in changed.items() if _DECLARED in path}
        declared |= {("tune", *path[1:]): both for path, both in changed.items() if path[0] == TUNE_KEY}
        source = [both for path, both in changed.items() if path[-1] == _SOURCE and _DECLARED not in path]
        found = [_change(".".join(path), *both) for path, both in sorted(declared.items())]
        found += [text for both in source for text in self._source(*both)]
        found += [f"{path[-1]} changed" for path in changed if _FILES in path[-2:-1] and _DECLARED not in path]
        if source and not found:
            # Another release of this project has different modules.
            return ["another version of tfx-estimator"]
        # Of days, a node each: CsvExampleGen.7.
        if changed and not found and (section := _SECTIONS.get(node.partition(".")[0])):
            found = self._declared(section, before)
        if not found and changed and all(path[-1] == _DATA for path in changed):
            return ["the files of the data set"]
        return found

    def _declared(self, name: str, before: Optional[Run]) -> list[str]:
        """Returns a section's changes since the previous run, whose log folder may have been deleted."""
        section: Section = getattr(self._declaration, name)
        deciding = {(name, *path) for path, _ in leaves(section.split()[0])}
        now = {".".join(path): value for path, value in leaves(_plain(self._declaration.dict())) if path in deciding}
        then = {each: _plain(before.values.get(each)) for each in now} if before else now
        return [_change(each, then[each], now[each]) for each in now if then[each] != now[each]]

    def _source(self, old: Optional[str], new: Optional[str]) -> Iterator[str]:
        """Yields the changed files and functions."""
        # A Trainer's property also names its initial weights.
        one, other = ((each or "").partition("-")[0] for each in (old, new))
        if one == other:
            yield "the checkpoint of trainer.warm_start"
            return
        before, now = parts.read(self._sources, one), parts.read(self._sources, other)
        # Runs of earlier releases did not keep their sources.
        yield from parts.changes(before, now) if before and now else ["source code, yours or of tfx-estimator"]


def _writer(store: Any, execution: int) -> int:
    """Returns the execution that wrote the outputs of this one, which may be cached."""
    wrote = [each.execution_id for each in store.get_events_by_artifact_ids(_written(store, execution))]
    return min([execution, *wrote])


def _written(store: Any, execution: int) -> list[int]:
    events = store.get_events_by_execution_ids([execution])
    return [each.artifact_id for each in events if each.type == metadata_store_pb2.Event.OUTPUT]


def _differences(before: metadata_store_pb2.Execution, now: metadata_store_pb2.Execution) -> Changes:
    old, new = dict(_leaves(properties_of(before))), dict(_leaves(properties_of(now)))
    return {path: (old.get(path), new.get(path)) for path in {**old, **new} if old.get(path) != new.get(path)}


def _new_inputs(store: Any, before: int, now: int) -> list[str]:
    """Returns the changed inputs."""
    found: dict[int, dict[str, set[int]]] = {before: {}, now: {}}
    for event in store.get_events_by_execution_ids([before, now]):
        if event.type == metadata_store_pb2.Event.INPUT:
            found[event.execution_id].setdefault(event.path.steps[0].key, set()).add(event.artifact_id)
    old, new = found[before], found[now]
    names = [name for name in sorted(new) if new[name] != old.get(name)]
    return [f"new {', '.join(names)}"] if names else [f"no {name} any more" for name in sorted(old) if name not in new]


def _other(changed: Changes) -> list[str]:
    """Returns the changed properties that are not declared."""
    found = []
    for path, both in changed.items():
        # TFX's wheel holds all modules in the folder of the named one.
        module = f"a module next to {str(both[1]).partition('@')[0]}.py"
        found.append(module if path[-1] == _WHEEL else _change(".".join(path), *both))
    return found


def _made(store: Any, execution: int) -> Iterator[types.Artifact]:
    """Yields the outputs of an execution."""
    kinds = {each.id: each for each in store.get_artifact_types()}
    for each in store.get_artifacts_by_id(_written(store, execution)):
        yield artifact_utils.deserialize_artifact(kinds[each.type_id], each)


def _damage(made: Iterable[types.Artifact]) -> list[str]:
    """Returns which output of an execution was deleted or damaged, so that TFX could not take it from the cache."""
    for artifact in made:
        if not fileio.exists(artifact.uri):
            return ["its output was deleted"]
        path, what = inventory.damage(artifact)
        if path:
            return [f"{os.path.basename(path)}: {what}"]
    return []


def _plain(value: Any) -> Any:
    """Returns the value as JSON holds it: tuples become lists."""
    return json.loads(json.dumps(value, default=str))


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields all values of properties with their paths, also those in JSON strings; a list is one value."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        with contextlib.suppress(ValueError):
            value = json.loads(value)
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _leaves(each, (*path, str(name)))
    elif path:
        yield path, value


def _change(name: str, old: Any, new: Any) -> str:
    return f"{name} {_shown(old)} → {_shown(new)}"


def _shown(value: Any) -> str:
    text = one_line("none" if value is None else value if isinstance(value, str) else json.dumps(value))
    return text if len(text) <= _LONGEST else f"{text[:20]}…{text[20 - _LONGEST :]}"
