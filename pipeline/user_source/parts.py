"""What a fingerprint of source code was made of: the functions and classes of each module, to say which has changed."""

from __future__ import annotations

import ast
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Optional

from tfx_estimator.pipeline.base.files import write_json
from tfx_estimator.pipeline.user_source.modules import PROJECT

# By name: what it says in each top-level statement, and the whole of the file.
Parts = Mapping[str, Mapping[str, str]]
_WHOLE = ""
_SOURCES: dict[str, Mapping[str, bytes]] = {}


def note(digest: str, sources: Mapping[str, bytes]) -> None:
    """Takes note of what a fingerprint of this process was made of."""
    _SOURCES[digest] = sources


def keep(folder: str) -> None:
    """Writes what each fingerprint of this process was made of, for a process that finds another one."""
    os.makedirs(folder, exist_ok=True)
    for digest, sources in _SOURCES.items():
        if not os.path.exists(path := os.path.join(folder, f"{digest}.json")):
            write_json(path, {name: dict(_parts(data)) for name, data in sources.items()})


def read(folder: str, digest: str) -> Optional[Parts]:
    """Returns what a fingerprint was made of; None if it was not kept."""
    try:
        with open(os.path.join(folder, f"{digest}.json"), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def tell(old: Parts, new: Parts) -> Iterator[str]:
    """Yields what has changed, a line each module: `networks.py: small(), RATE`."""
    if any(name.partition(".")[0] == PROJECT and old[name] != new[name] for name in {*old} & {*new}):
        yield "another version of tfx-estimator"
    for name in sorted({**old, **new}):
        one, other, file = old.get(name), new.get(name), f"{name.replace('.', '/')}.py"
        if one == other or name.partition(".")[0] == PROJECT:
            continue
        if one is None or other is None:
            yield f"{file} is {'new' if one is None else 'imported no more'}"
            continue
        names = [each for each in {**one, **other} if each != _WHOLE and one.get(each) != other.get(each)]
        yield f"{file} changed: {', '.join(names) or 'comments'}"


def _parts(data: bytes) -> Iterator[tuple[str, str]]:
    yield _WHOLE, _hash(data)
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError):
        return
    found: dict[str, list[str]] = {}
    for node in tree.body:
        found.setdefault(_name(node), []).append(ast.dump(node))
    for name, texts in found.items():
        yield name, _hash("\n".join(texts).encode())


def _name(node: ast.stmt) -> str:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return f"{node.name}()"
    if isinstance(node, ast.ClassDef):
        return node.name
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    names = [each.id for each in targets if isinstance(each, ast.Name)]
    if names:
        return names[0]
    return "imports" if isinstance(node, (ast.Import, ast.ImportFrom)) else "statements"


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
