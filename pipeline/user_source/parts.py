"""The parts of a fingerprint of source code: the functions and classes of each module, to name those that changed."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from typing import Optional

from tfx_estimator.pipeline.base.files import read_json, write_json
from tfx_estimator.pipeline.user_source.imports import parse, text_of
from tfx_estimator.pipeline.user_source.modules import PROJECT

# By module: the hashes of its top-level statements by name, and that of the whole file.
Parts = Mapping[str, Mapping[str, str]]
_WHOLE = ""
_MOST = 3
_SOURCES: dict[str, Mapping[str, bytes]] = {}


def record(digest: str, sources: Mapping[str, bytes]) -> None:
    """Records the sources of a fingerprint in this process."""
    _SOURCES[digest] = sources


def save(folder: str) -> None:
    """Writes the parts of each recorded fingerprint, for comparison by a later run."""
    # Without the files, messages are only less detailed.
    with contextlib.suppress(OSError):
        os.makedirs(folder, exist_ok=True)
        for digest, sources in _SOURCES.items():
            if read(folder, digest) is None:
                write_json(os.path.join(folder, f"{digest}.json"), parts_of(sources))


def read(folder: str, digest: str) -> Optional[Parts]:
    """Returns the saved parts of a fingerprint; None if there are none."""
    with contextlib.suppress(OSError):
        return read_json(os.path.join(folder, f"{digest}.json"))
    return None


def parts_of(sources: Mapping[str, bytes]) -> dict[str, dict[str, str]]:
    """Returns the parts of each module, independent of Python's version."""
    return {name: dict(_parts(name, data)) for name, data in sources.items()}


def changes(old: Parts, new: Parts) -> Iterator[str]:
    """Yields the changes, a line for each module: `networks.py changed: small(), RATE`."""
    # Only modules in both: another training path uses other modules of this project.
    if any(_is_ours(name) and old[name] != new[name] for name in {*old} & {*new}):
        yield "another version of tfx-estimator"
    for name in sorted({**old, **new}):
        one, other = old.get(name), new.get(name)
        if one == other or _is_ours(name):
            continue
        is_package = any(each.startswith(f"{name}.") for each in {**old, **new})
        file = name.replace(".", "/") + ("/__init__.py" if is_package else ".py")
        if one is None or other is None:
            yield f"{file} is {'new' if one is None else 'no longer imported'}"
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
