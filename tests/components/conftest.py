"""An object store for tests, registered with TFX's file systems; and inputs of a Trainer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.components.trainer.conftest import declaration, digits, settings  # noqa: F401

DIED = 9


def until_it_lives(bucket, act: Callable[[], None], before: Callable[[], None]) -> Iterator[bool]:
    """Calls `act` in a process that dies at its first store operation, then at its second, until one survives.

    Args:
        before: Called before each attempt.

    Yields:
        Whether the process died.
    """
    code, operations = DIED, 0
    while code == DIED:
        before()
        pid = os.fork()
        if not pid:
            bucket.left = operations
            try:
                act()
                os._exit(0)
            finally:
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        yield code == DIED
        operations += 1
    assert code == 0


def store(root: Path):
    """A file system that is backed by a folder and supports no renames."""
    from tfx.dsl.io import filesystem
    from tfx.dsl.io.plugins.local import LocalFilesystem

    def located(path: str) -> str:
        return str(root / path.removeprefix("store://")) if path.startswith("store://") else path

    class Store(filesystem.Filesystem):
        SUPPORTED_SCHEMES = ["store://"]
        # The number of operations until this process dies.
        left = -1

        @classmethod
        def _count(cls) -> None:
            if cls.left == 0:
                os._exit(DIED)
            cls.left -= 1

        @classmethod
        def open(cls, name, mode="r"):
            if "w" in mode:
                cls._count()
                os.makedirs(os.path.dirname(located(name)), exist_ok=True)
            return open(located(name), mode)

        @classmethod
        def copy(cls, src, dst, overwrite=False):
            cls._count()
            os.makedirs(os.path.dirname(located(dst)), exist_ok=True)
            LocalFilesystem.copy(located(src), located(dst), overwrite)

        @classmethod
        def makedirs(cls, path):
            cls._count()
            os.makedirs(located(path), exist_ok=True)

        @classmethod
        def remove(cls, path):
            cls._count()
            os.remove(located(path))

        @classmethod
        def rmtree(cls, path):
            # In the order of the listing.
            for file in sorted(str(file) for file in Path(located(path)).rglob("*") if file.is_file()):
                cls._count()
                os.remove(file)
            shutil.rmtree(located(path))

        @classmethod
        def walk(cls, top, topdown=True, onerror=None):
            for folder, folders, names in os.walk(located(top)):
                yield f"store://{os.path.relpath(folder, root)}", [f"{name}/" for name in folders], names

        @classmethod
        def listdir(cls, path):
            return [name + "/" * os.path.isdir(os.path.join(located(path), name)) for name in os.listdir(located(path))]

        exists = classmethod(lambda cls, path: os.path.exists(located(path)))
        stat = classmethod(lambda cls, path: os.stat(located(path)))
        glob = isdir = mkdir = rename = None

    return Store


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch):
    """The file system, registered with TFX; `folder` holds its versions."""
    from tfx.dsl.io.filesystem_registry import DEFAULT_FILESYSTEM_REGISTRY as REGISTRY

    monkeypatch.setattr(REGISTRY, "_preferred_filesystem_by_scheme", dict(REGISTRY._preferred_filesystem_by_scheme))
    monkeypatch.setattr(REGISTRY, "_filesystem_priority", dict(REGISTRY._filesystem_priority))
    made = store(tmp_path)
    REGISTRY.register(made, priority=0)
    # It also copies local files, as TensorFlow's file system does for gs://.
    monkeypatch.setitem(REGISTRY._preferred_filesystem_by_scheme, "", made)
    made.folder = tmp_path / "bucket" / "serving"
    return made
