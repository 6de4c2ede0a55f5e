"""The installed packages that are in this project's image."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from tfx_estimator.pipeline.base.installed import BUILDS
from tfx_estimator.pipeline.base.stack import stacks

_DISTRIBUTION = "tfx-estimator"


def distributions_of(module: str) -> tuple[str, ...]:
    """Returns the installed distributions of a top-level module; maybe none of one without metadata."""
    return tuple(dict.fromkeys(_by_module().get(module, ())))


def is_of_image(module: str) -> bool:
    """Returns True if a top-level module belongs to a package of the image's lock file."""
    return any(_canonical(each) in _of_image() for each in distributions_of(module))


@functools.lru_cache(maxsize=1)
def _by_module() -> Mapping[str, list[str]]:
    # Cached, as it reads the metadata of each installed package: 0.3 s.
    from importlib import metadata

    found: dict[str, list[str]] = {}
    for distribution in metadata.distributions():
        # Newer build tools omit top_level.txt: `metadata.packages_distributions` of this Python does not find NumPy.
        tops = (distribution.read_text("top_level.txt") or "").split() or _tops(distribution.read_text("RECORD") or "")
        for top in tops:
            found.setdefault(top, []).append(distribution.metadata["Name"])
    return found


def _tops(record: str) -> set[str]:
    """Returns the top-level modules among the files of a RECORD."""
    paths = (line.partition(",")[0].partition("/") for line in record.splitlines())
    return {
        first.partition(".")[0]
        for first, slash, _ in paths
        if (slash and "." not in first) or first.endswith((".py", ".so"))
    }


@functools.lru_cache(maxsize=1)
def _of_image() -> frozenset[str]:
    from importlib import metadata

    from packaging.requirements import Requirement

    try:
        declared = metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        # A checkout without installation.
        declared = []
    # This extra has all packages of the stack's lock file.
    extra = {"extra": f"{stacks.current().extra}-locked"}
    mine = [each for each in map(Requirement, declared) if each.marker is None or each.marker.evaluate(extra)]
    names = {_canonical(each.name) for each in mine}
    return frozenset({*names, *(build for name in names for build in BUILDS.get(name, ())), _DISTRIBUTION})


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
