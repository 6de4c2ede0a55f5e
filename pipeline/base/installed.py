"""Installed packages: their versions, what they require, and their imports in less time."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Optional

# The same under another name: for CPUs alone, of Intel's, of AMD's, for macOS.
BUILDS = {"tensorflow": ("tensorflow-cpu", "tensorflow-intel", "tensorflow-rocm", "tensorflow-macos")}
# What others require and a pipeline works without; the image has none of it, nor what these alone require: TFMA's
# widgets, and IPython with all of Jupyter; Beam's way to a private package index; a compiler's library that TensorFlow
# never loads.
LEFT_OUT = ("ipywidgets", "ipython", "keyrings-google-artifactregistry-auth", "libclang")


def version_of(name: str) -> Optional[str]:
    """Returns the installed version of a distribution package, TensorFlow's by whatever name; None if there is none."""
    return _first(name, lambda metadata, each: metadata.version(each))


def required_by(requirement: str, names: Iterable[str]) -> set[str]:
    """Returns which of some packages a requirement leads to in this Python, installed or not."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    seen: set[tuple[str, str]] = set()
    waiting = [Requirement(requirement)]
    while waiting:
        asked = waiting.pop()
        name = canonicalize_name(asked.name)
        for extra in {"", *asked.extras}:
            if name in LEFT_OUT or (name, extra) in seen:
                continue
            seen.add((name, extra))
            below = map(Requirement, _first(name, lambda metadata, each: metadata.requires(each)) or ())
            waiting += [each for each in below if each.marker is None or each.marker.evaluate({"extra": extra})]
    return {name for name, _ in seen}.intersection(names)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Has Python look for no garbage among what is imported in the context, nor ever after.

    All of it stays, and there is so much of it that looking takes a sixth of the time of importing TensorFlow, and a
    quarter of TFX's.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


def _first(name: str, ask: Callable[[Any, str], Any]) -> Any:
    # Here, since it takes 25 ms to import, and every verb's module is imported for the help.
    from importlib import metadata

    for each in (name, *BUILDS.get(name, ())):
        try:
            return ask(metadata, each)
        except metadata.PackageNotFoundError:
            continue
    return None
