"""Installed packages: their versions and requirements, and faster imports."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Optional

# Builds of a package under other names: for CPUs only, by Intel, by AMD, for macOS.
BUILDS = {"tensorflow": ("tensorflow-cpu", "tensorflow-intel", "tensorflow-rocm", "tensorflow-macos")}
# Requirements of others that no pipeline needs; the image omits them and their own requirements: TFMA's widgets, and
# IPython with all of Jupyter; Beam's access to a private package index; a library that TensorFlow never loads.
LEFT_OUT = ("ipywidgets", "ipython", "keyrings-google-artifactregistry-auth", "libclang")


def version_of(name: str) -> Optional[str]:
    """Returns the installed version of a distribution package or one of its BUILDS; None if there is none."""
    return _first(name, lambda metadata, each: metadata.version(each))


def install_command(extra: str) -> str:
    """Returns the command that installs this package with an extra, from where it came: a wheel, folder or index."""
    import json
    from importlib import metadata
    from urllib.parse import unquote

    try:
        # Written by pip, unless it took the package from an index: PEP 610.
        origin = json.loads(metadata.distribution("tfx-estimator").read_text("direct_url.json") or "{}")
    except metadata.PackageNotFoundError:
        origin = {"url": Path(__file__).resolve().parents[2].as_uri(), "dir_info": {"editable": True}}
    scheme, _, path = origin.get("url", "").partition("://")
    name = f"{unquote(path)}[{extra}]" if scheme == "file" else f"tfx-estimator[{extra}]"
    if scheme and scheme != "file":
        name += f" @ {origin['vcs_info']['vcs'] + '+' if 'vcs_info' in origin else ''}{origin['url']}"
    return f'pip install {"-e " if origin.get("dir_info", {}).get("editable") else ""}"{name}"'


def required_by(requirement: str, names: Iterable[str]) -> set[str]:
    """Returns those of the named packages that a requirement needs in this Python, directly or not."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    seen: set[tuple[str, str]] = set()
    waiting = [Requirement(requirement)]
    while waiting:
        current = waiting.pop()
        name = canonicalize_name(current.name)
        for extra in {"", *current.extras}:
            if name in LEFT_OUT or (name, extra) in seen:
                continue
            seen.add((name, extra))
            below = map(Requirement, _first(name, lambda metadata, each: metadata.requires(each)) or ())
            waiting += [each for each in below if each.marker is None or each.marker.evaluate({"extra": extra})]
    return {name for name, _ in seen}.intersection(names)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Excludes the objects that are imported in the context from garbage collection, for good.

    All of them stay, and collections take a sixth of the time of importing TensorFlow, and a quarter of TFX's.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


def _first(name: str, query: Callable[[Any, str], Any]) -> Any:
    # Imported here, as it takes 25 ms, and every verb's module is imported for the help.
    from importlib import metadata

    for each in (name, *BUILDS.get(name, ())):
        try:
            return query(metadata, each)
        except metadata.PackageNotFoundError:
            continue
    return None
