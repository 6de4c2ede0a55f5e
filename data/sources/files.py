"""The files that a data set is read from: the error for one that is not what it should be, and a hash of them all."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tfx_estimator.pipeline.base.errors import DamagedDataError
from tfx_estimator.pipeline.base.text import one_line

_TODO = "fetch the file again, or remove it from the folder"
# Bytes: above this, hashing contents would cost more than it tells, and sizes and times are taken instead.
CONTENT_LIMIT = 1 << 30


def damaged(path: Any, what: str, expected: str, todo: str = _TODO) -> DamagedDataError:
    """Returns the error for a file that is not what it should be."""
    return DamagedDataError(f"damaged file {one_line(str(path))}: {what}", expected=expected, todo=todo)


@contextlib.contextmanager
def reading(path: Any, todo: str = _TODO) -> Iterator[None]:
    """Names a file that cannot be read as it should: missing, a link to nowhere, a folder, or not ours to read."""
    try:
        yield
    except FileNotFoundError:
        raise damaged(path, "it is missing", "the file that was there before", todo) from None
    except UnicodeDecodeError as error:
        raise damaged(path, f"it is no text: {error.reason} at byte {error.start}", "UTF-8", todo) from None
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise  # of the machine, and not of the file
        raise damaged(path, f"it cannot be read: {error.strerror or error}", "a readable file", todo) from None


def fingerprint_files(paths: Iterable[Any], facts: Mapping[str, Any]) -> str:
    """Returns a SHA-256 over files (`epath.Path`), and over facts, of JSON values, that examples depend on as well.

    Up to CONTENT_LIMIT in all, the contents count and not where the files are; above, their names, sizes and
    modification times.
    """
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    stats = []
    for path in sorted(paths):
        with reading(path):
            stats.append((path, path.stat()))
    whole = sum(stat.length for _, stat in stats) <= CONTENT_LIMIT
    for path, stat in stats:
        digest.update(f"\n{path.name} {stat.length} ".encode())
        if not whole:
            digest.update(f"{stat.mtime}".encode())
            continue
        with reading(path), path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
