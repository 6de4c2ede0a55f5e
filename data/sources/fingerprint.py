"""A hash of the files that a data set is read from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from tfx_estimator.data.sources.damage import reading

# Above this, hashing contents would cost more than it tells: sizes and times are taken instead.
CONTENT_LIMIT = 1 << 30


def of_files(paths: Iterable[Any], facts: Mapping[str, Any]) -> str:
    """Returns a SHA-256 over facts and files.

    Up to 1 GiB in all, the contents count and not where the files are; above, their names, sizes and modification
    times.

    Args:
        paths: `epath.Path` of each file.
        facts: whatever else the examples depend on; JSON values.

    Raises:
        DamagedDataError: a file cannot be read.
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
