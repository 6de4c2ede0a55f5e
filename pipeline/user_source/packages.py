"""Which installed packages a container of this project's image has."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from tfx_estimator.pipeline.base.installed import BUILDS
from tfx_estimator.pipeline.base.stack import stacks

_DISTRIBUTION = "tfx-estimator"


def distributions_of(module: str) -> tuple[str, ...]:
    """Names the installed distributions that a top-level module is of; none may be known of what has no metadata."""
    return tuple(dict.fromkeys(_by_module().get(module, ())))


def is_of_image(module: str) -> bool:
    """Tells whether a top-level module is of what this project's image has: of the packages of its lock file."""
    return any(_canonical(each) in _of_image() for each in distributions_of(module))


@functools.lru_cache(maxsize=1)
def _by_module() -> Mapping[str, list[str]]:
    # Here, as it reads what each installed package says of itself: 0.3 s.
    from importlib import metadata

    found: dict[str, list[str]] = {}
    for distribution in metadata.distributions():
        # Newer build tools leave out the first: `metadata.packages_distributions` of this Python knows no NumPy.
        tops = (distribution.read_text("top_level.txt") or "").split() or _tops(distribution.read_text("RECORD") or "")
        for top in tops:
            found.setdefault(top, []).append(distribution.metadata["Name"])
    return found


def _tops(record: str) -> set[str]:
    """The top-level modules among the files that a wheel installed."""
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
        # A checkout that was not installed.
        declared = []
    # The extra that names all that this stack's lock file does.
    extra = {"extra": f"{stacks.current().extra}-locked"}
    mine = [each for each in map(Requirement, declared) if each.marker is None or each.marker.evaluate(extra)]
    names = {_canonical(each.name) for each in mine}
    return frozenset({*names, *(build for name in names for build in BUILDS.get(name, ())), _DISTRIBUTION})


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
