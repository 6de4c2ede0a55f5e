"""Writes, reads and damages files."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

# What a power failure may leave of a JSON file, and what another program may.
GARBLED: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
    "not text": lambda content: b"\xff\xfe" + content,
    "another value": lambda content: b"5",
}


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Writes files, by name within a folder; returns the folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Returns the content of each file, by name within the folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def flip(path: Path) -> None:
    """Changes some bytes of a file, and keeps its size."""
    content = bytearray(path.read_bytes())
    for place in range(len(content) // 2, len(content), max(len(content) // 20, 1)):
        content[place] ^= 0x5A
    path.write_bytes(content)


@contextlib.contextmanager
def small_file_system(folder: Path, size: str) -> Iterator[None]:
    """Mounts one of a size, as `9m`, at a new folder; skips the test where that is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if (mounted := subprocess.run(mount, capture_output=True, text=True, check=False)).returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
