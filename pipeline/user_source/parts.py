"""What a fingerprint of source code was made of: the functions and classes of each module, to say which has changed."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Optional

from tfx_estimator.pipeline.base.files import write_json
from tfx_estimator.pipeline.user_source.imports import parse, text_of
from tfx_estimator.pipeline.user_source.modules import PROJECT

# By name: what it says in each top-level statement, and the whole of the file.
Parts = Mapping[str, Mapping[str, str]]
_WHOLE = ""
_MOST = 3
_SOURCES: dict[str, Mapping[str, bytes]] = {}


def note(digest: str, sources: Mapping[str, bytes]) -> None:
    """Takes note of what a fingerprint of this process was made of."""
    _SOURCES[digest] = sources


def keep(folder: str) -> None:
    """Writes what each fingerprint of this process was made of, for a process that finds another one."""
    # Without it, less can be said.
    with contextlib.suppress(OSError):
        os.makedirs(folder, exist_ok=True)
        for digest, sources in _SOURCES.items():
            if not os.path.exists(path := os.path.join(folder, f"{digest}.json")):
                write_json(path, take_apart(sources))


def read(folder: str, digest: str) -> Optional[Parts]:
    """Returns what a fingerprint was made of; None if it was not kept."""
    try:
        with open(os.path.join(folder, f"{digest}.json"), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def take_apart(sources: Mapping[str, bytes]) -> dict[str, dict[str, str]]:
    """Returns the parts of each module, whatever Python this is."""
    return {name: dict(_parts(name, data)) for name, data in sources.items()}


def tell(old: Parts, new: Parts) -> Iterator[str]:
    """Yields what has changed, a line each module: `networks.py changed: small(), RATE`."""
    # Another path of training takes other modules of this project.
    if any(_is_ours(name) and old[name] != new[name] for name in {*old} & {*new}):
        yield "another version of tfx-estimator"
    for name in sorted({**old, **new}):
        one, other = old.get(name), new.get(name)
        if one == other or _is_ours(name):
            continue
        is_package = any(each.startswith(f"{name}.") for each in {**old, **new})
        file = name.replace(".", "/") + ("/__init__.py" if is_package else ".py")
        if one is None or other is None:
            yield f"{file} is {'new' if one is None else 'imported no more'}"
            continue
        names = [each for each in {**one, **other} if each != _WHOLE and one.get(each) != other.get(each)]
        more = [f"{len(names) - _MOST} more"] if len(names) > _MOST else []
        yield f"{file} changed: {', '.join([*names[:_MOST], *more]) or 'comments or order'}"


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == PROJECT


def _parts(module: str, data: bytes) -> Iterator[tuple[str, str]]:
    yield _WHOLE, _hash(data)
    tree = None if _is_ours(module) else parse(data)
    found: dict[str, list[str]] = {}
    with contextlib.suppress(RecursionError):
        for node in tree.body if tree is not None else ():
            found.setdefault(_name(node), []).append(text_of(node))
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
