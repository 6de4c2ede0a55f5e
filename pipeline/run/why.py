"""Why a component ran, and was not taken from the cache: what differs from its execution before."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, Optional

from ml_metadata.proto import metadata_store_pb2

from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.yaml_text import leaves
from tfx_estimator.pipeline.folders import PipelineFolders, uris_here
from tfx_estimator.pipeline.report.artifacts import open_store, properties_of
from tfx_estimator.pipeline.report.source import log_folders, read_run
from tfx_estimator.pipeline.runners.listener import NodeRun
from tfx_estimator.pipeline.user_source import parts

FIRST = "first run"
# Where the sections of the declaration that decide a component's key are not in its properties by their names.
_SECTIONS = {"TfdsExampleGen": "data", "Transform": "transform", "Evaluator": "evaluator", "Pusher": "pusher"}
_DECLARED, _SOURCE, _DATA, _WHEEL = "declaration", "source", "fingerprint", "module_path"
_DONE = (metadata_store_pb2.Execution.COMPLETE, metadata_store_pb2.Execution.CACHED)
_MOST, _LONGEST = 3, 60
# By the path of a property: what it was, and what it is.
Changes = Mapping[tuple[str, ...], tuple[Any, Any]]


class Why:
    """Tells it of one component after another.

    Args:
        folders: Of the pipeline, which only this run uses.
        declaration: That runs.
    """

    def __init__(self, folders: PipelineFolders, declaration: Declaration) -> None:
        self._folders, self._declaration = folders, declaration
        self._sources = os.path.join(folders.local, ".sources")
        parts.keep(self._sources)

    def __call__(self, run: NodeRun) -> str:
        """Returns the reason; empty if it is not known."""
        store = open_store(self._folders.metadata)
        context = store.get_context_by_type_and_name("node", f"{self._folders.name}.{run.node}")
        executions = {each.id: each for each in store.get_executions_by_context(context.id)} if context else {}
        if (now := executions.get(run.execution_id or 0)) is None:
            return ""
        done = [each for each in executions.values() if each.id < now.id and each.last_known_state in _DONE]
        if not done:
            return FIRST
        last = max(done, key=lambda each: each.id)
        # Of one that was cached, ML Metadata has what the component was given, not what its driver made of that.
        before = executions[_writer(store, last.id)]
        changed = _differences(before, now)
        reasons = self._changed(run.node, last.id, changed) or _new_inputs(store, before.id, now.id)
        return _listed(reasons or _raw(changed)) or self._gone(store, before.id)

    def _changed(self, node: str, last: int, changed: Changes) -> list[str]:
        """What of the declaration, of source, of data."""
        declared = {
            ".".join(path[path.index(_DECLARED) + 1 :]): values for path, values in changed.items() if _DECLARED in path
        }
        source = [values for path, values in changed.items() if path[-1] == _SOURCE]
        if changed and not declared and not source and node in _SECTIONS:
            declared = self._declared(node, last)
        told = [f"{name} {_shown(one)} → {_shown(other)}" for name, (one, other) in sorted(declared.items())]
        told += [text for values in source for text in self._source(*values)]
        if not told and any(path[-1] == _DATA for path in changed):
            return ["the files of the data set"]
        return told

    def _declared(self, node: str, execution: int) -> dict[str, tuple[Any, Any]]:
        """What is declared otherwise than in the run of an execution, whose log folder may have been deleted."""
        section = _SECTIONS[node]
        deciding = {(section, *path) for path, _ in leaves(getattr(self._declaration, section).split()[0])}
        now = {".".join(path): value for path, value in leaves(_plain(self._declaration.dict())) if path in deciding}
        for logs in reversed(log_folders(self._folders.logs)):
            try:
                run = read_run(logs)
            except (OSError, ValueError):
                continue
            if execution in (each.get("execution_id") for each in run.summary.get("components", ())):
                before = {name: _plain(run.values.get(name)) for name in now}
                return {name: (before[name], now[name]) for name in now if before[name] != now[name]}
        return {}

    def _source(self, old: Optional[str], new: Optional[str]) -> Iterator[str]:
        """Which files are others, and which functions in them."""
        # A Trainer's property names the weights that it begins with as well.
        one, other = ((each or "").partition("-")[0] for each in (old, new))
        if one == other:
            yield "the checkpoint of trainer.warm_start"
            return
        before, now = parts.read(self._sources, one), parts.read(self._sources, other)
        # A run of an earlier release has kept none.
        yield from parts.tell(before, now) if before and now else ["your code"]

    def _gone(self, store: Any, execution: int) -> str:
        """Tells whether TFX would have taken what the execution before wrote, and did not find it."""
        database = self._folders.metadata
        moved = {} if is_address(self._folders.home) else uris_here(database, self._folders.home)
        events = store.get_events_by_execution_ids([execution])
        written = [each.artifact_id for each in events if each.type == metadata_store_pb2.Event.OUTPUT]
        uris = [moved.get(each.uri, each.uri) for each in store.get_artifacts_by_id(written)]
        gone = [uri for uri in uris if not is_address(uri) and not os.path.exists(uri)]
        return "what it had written is gone" if gone else ""


def _writer(store: Any, execution: int) -> int:
    """The execution that wrote what this one wrote, or found in the cache."""
    events = store.get_events_by_execution_ids([execution])
    written = [each.artifact_id for each in events if each.type == metadata_store_pb2.Event.OUTPUT]
    wrote = [each.execution_id for each in store.get_events_by_artifact_ids(written) if each.type == each.OUTPUT]
    return min([execution, *wrote])


def _differences(before: metadata_store_pb2.Execution, now: metadata_store_pb2.Execution) -> Changes:
    old, new = dict(_leaves(properties_of(before))), dict(_leaves(properties_of(now)))
    return {path: (old.get(path), new.get(path)) for path in {**old, **new} if old.get(path) != new.get(path)}


def _new_inputs(store: Any, before: int, now: int) -> list[str]:
    """Which of its inputs are others."""
    found: dict[int, dict[str, set[int]]] = {before: {}, now: {}}
    for event in store.get_events_by_execution_ids([before, now]):
        if event.type == metadata_store_pb2.Event.INPUT:
            found[event.execution_id].setdefault(event.path.steps[0].key, set()).add(event.artifact_id)
    old, new = found[before], found[now]
    names = [name for name in sorted(new) if new[name] != old.get(name)]
    return [f"new {', '.join(names)}"] if names else [f"no {name} any more" for name in sorted(old) if name not in new]


def _raw(changed: Changes) -> list[str]:
    """Properties that stand for nothing declared, by their names."""
    found = []
    for path, (one, other) in changed.items():
        # A wheel of all modules in a folder, of which TFX has the name.
        if path[-1] == _WHEEL:
            found.append(f"a module beside {str(other).partition('@')[0]}.py")
        else:
            found.append(f"{'.'.join(path)} {_shown(one)} → {_shown(other)}")
    return found


def _listed(reasons: list[str]) -> str:
    return ", ".join([*reasons[:_MOST], *([f"{len(reasons) - _MOST} more"] if len(reasons) > _MOST else [])])


def _plain(value: Any) -> Any:
    """As JSON has it, which knows no tuples."""
    return json.loads(json.dumps(value, default=str))


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All values of properties, those in texts that are JSON as well."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        with contextlib.suppress(ValueError):
            value = json.loads(value)
    items: Mapping[Any, Any] = dict(enumerate(value)) if isinstance(value, list) else value
    if isinstance(value, (dict, list)) and value:
        for name, each in items.items():
            yield from _leaves(each, (*path, str(name)))
    elif path:
        yield path, value


def _shown(value: Any) -> str:
    text = one_line("none" if value is None else value if isinstance(value, str) else json.dumps(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
