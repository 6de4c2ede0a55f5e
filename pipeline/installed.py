"""Which version of a package is installed. Standard library only."""

from __future__ import annotations

from typing import Optional

# The same under another name: for CPUs alone, of Intel's, of AMD's, for macOS.
BUILDS = {"tensorflow": ("tensorflow-cpu", "tensorflow-intel", "tensorflow-rocm", "tensorflow-macos")}


def version_of(name: str) -> Optional[str]:
    """Returns the installed version of a distribution package, TensorFlow's by whatever name; None if there is none."""
    # Here, since it takes 25 ms to import, and every verb's module is imported for the help.
    from importlib import metadata

    for each in (name, *BUILDS.get(name, ())):
        try:
            return metadata.version(each)
        except metadata.PackageNotFoundError:
            continue
    return None
