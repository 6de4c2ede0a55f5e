"""The files of a data set: the error for a damaged one, and hashes of them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Optional

from tfx_estimator.pipeline.base.errors import DamagedDataError
from tfx_estimator.pipeline.base.files import open_regular
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.user_data.read import refuse_encoding

_TODO = "fetch the file again, or remove it from the folder"
# The largest files that are read as a whole.
IMAGE_BYTES, TABLE_BYTES = 1 << 29, 1 << 33
# Bytes: above this, sizes and times are hashed instead of the contents, to save time.
CONTENT_LIMIT = 1 << 30


def damaged(path: Any, what: str, expected: str, todo: str = _TODO) -> DamagedDataError:
    """Returns the error for a damaged file."""
    return DamagedDataError(f"damaged file {one_line(str(path))}: {what}", expected=expected, todo=todo)


@contextlib.contextmanager
def reading(path: Any, todo: str = _TODO) -> Iterator[None]:
    """Raises an error that names the file if it cannot be read: missing, a dead link, a folder, or not permitted."""
    try:
        yield
    except FileNotFoundError:
        raise damaged(path, "it is missing", "the file that was there before", todo) from None
    except UnicodeDecodeError as error:
        raise refuse_encoding(error, path) from None
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise  # an error of the machine, not of the file
        raise damaged(path, f"it cannot be read: {error.strerror or error}", "a readable file", todo) from None


def fingerprint_files(paths: Iterable[Any], facts: Mapping[str, Any], hashes: Optional[dict[Any, bytes]] = None) -> str:
    """Returns a SHA-256 of files (`epath.Path`), and of further facts (JSON values) that examples depend on.

    Up to CONTENT_LIMIT in total, the files' names and contents count, but not their folder; above, their names, sizes
    and modification times. `hashes` receives a hash of each file whose contents count.
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
        content = hashlib.blake2b(digest_size=16)
        with reading(path), open_regular(path) as file:
            while block := file.read(1 << 20):
                digest.update(block)
                content.update(block)
        if hashes is not None:
            hashes[path] = content.digest()
    return digest.hexdigest()
