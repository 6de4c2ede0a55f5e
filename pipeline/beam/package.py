"""This package as a source distribution, for workers that have its requirements and not it."""

from __future__ import annotations

import gzip
import importlib.metadata
import io
import tarfile
from pathlib import Path

import tfx_estimator

# No requirements: the workers' image has them, and pip need not ask anybody.
_SETUP = """\
from setuptools import find_packages, setup

setup(name="tfx-estimator", version={version!r}, packages=find_packages(), include_package_data=True)
"""
_NOT = ("__pycache__",)


def build_sdist(folder: str) -> str:
    """Writes it, from what is installed; the same files give the same bytes.

    Args:
        folder: Where to.

    Returns:
        Its path.
    """
    version = importlib.metadata.version("tfx-estimator")
    name = f"tfx_estimator-{version}"
    # As setuptools finds them: `src/tfx_estimator` has links to its folders.
    package = Path(tfx_estimator.__file__).parent
    files = {f"tfx_estimator/{path}": (package / path).read_bytes() for path in _files(package, Path())}
    files["setup.py"] = _SETUP.format(version=version).encode()
    files["MANIFEST.in"] = b"graft tfx_estimator\n"
    files["PKG-INFO"] = f"Metadata-Version: 2.1\nName: tfx-estimator\nVersion: {version}\n".encode()
    target = Path(folder) / f"{name}.tar.gz"
    with gzip.GzipFile(target, "wb", mtime=0) as file, tarfile.open(fileobj=file, mode="w") as archive:
        for path in sorted(files):
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size = len(files[path])
            archive.addfile(entry, io.BytesIO(files[path]))
    return str(target)


def _files(package: Path, folder: Path) -> list[Path]:
    found = []
    for path in sorted((package / folder).iterdir()):
        relative = folder / path.name
        if path.is_dir() and path.name not in _NOT:
            found += _files(package, relative)
        elif path.is_file():
            found.append(relative)
    return found
