"""Packs the user's own modules into a wheel: those that a declaration names, and their imports."""

from __future__ import annotations

import base64
import hashlib
import io
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.user_source.fingerprint import find_root, follow_imports
from tfx_estimator.pipeline.user_source.modules import Module, is_project, is_source
from tfx_estimator.pipeline.user_source.packages import distributions_of, is_of_image

# The earliest time of a zip file, so that equal modules result in equal bytes.
_TIME = (1980, 1, 1, 0, 0, 0)
# Top-level folders that some packages install by mistake, and that are not imported.
_BY_ACCIDENT = ("docs", "examples", "tests")
_DISTRIBUTION = "tfx_estimator_user_modules"
_METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
_WHEEL = "Wheel-Version: 1.0\nGenerator: tfx-estimator\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@dataclass(frozen=True)
class Packed:
    """The user's modules as one file.

    Args:
        name: Of the wheel; it contains part of the contents' hash.
        modules: Its modules' dotted names, sorted.
    """

    name: str
    data: bytes
    modules: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """The data's hash, hexadecimal."""
        return hashlib.sha256(self.data).hexdigest()


def pack(targets: Sequence[str], search_paths: Sequence[str] = ()) -> Optional[Packed]:
    """Packs the modules that `fingerprint_source` hashes, except this project's; returns None if there are none.

    Data files are not packed. It raises the first error of `find_obstacles`.
    """
    found: dict[str, tuple[Module, bytes]] = {}
    for obstacle in _collect(targets, search_paths, found):
        raise obstacle
    return _write(found) if found else None


def find_obstacles(targets: Sequence[str], search_paths: Sequence[str] = ()) -> list[DeclarationError]:
    """Returns all errors that `pack` would raise."""
    return list(_collect(targets, search_paths, {}))


def _collect(
    targets: Sequence[str], search_paths: Sequence[str], found: dict[str, tuple[Module, bytes]]
) -> Iterator[DeclarationError]:
    """Adds the modules to pack to `found`, by name; yields an error for each that cannot be packed."""
    for target in targets:
        try:
            for module, data in follow_imports(target, search_paths):
                if is_project(module):
                    continue
                if (obstacle := _obstacle(module, found)) is not None:
                    yield obstacle
                else:
                    found[module.name] = (module, data)
        except DeclarationError as error:
            yield error


def _obstacle(module: Module, found: dict[str, tuple[Module, bytes]]) -> Optional[DeclarationError]:
    """Returns the error of a module that cannot be packed with those in `found`; None if it can."""
    if not is_source(module):
        return DeclarationError(
            f"the module {module.name} is compiled code, {module.file}: it cannot be copied to another machine",
            expected="modules in Python",
            todo="install it in the image as a package, and here into site-packages",
        )
    if (top := module.name.partition(".")[0]) in sys.stdlib_module_names:
        return DeclarationError(
            f"the module {module.name}, {module.file}, has the name of a standard module: {top}",
            expected="another name, as it precedes the standard module where the steps run",
            todo="rename it",
        )
    if module.name not in _BY_ACCIDENT and is_of_image(module.name):
        return DeclarationError(
            f"the module {module.name}, {module.file}, has the name of an installed package, "
            f"{'/'.join(distributions_of(module.name))}, that tfx-estimator needs",
            expected="another name, as it precedes that package where the steps run",
            todo="rename it",
        )
    if module.name in found and found[module.name][0].file != module.file:
        return DeclarationError(
            f"two modules are called {module.name}: {found[module.name][0].file} and {module.file}",
            expected="each name once, as all steps import from one place",
            todo="rename one of them",
        )
    return None


def module_name(file: str) -> str:
    """Returns the dotted name of a module file, including its parent packages."""
    return find_root(file)[0].name


def _write(found: dict[str, tuple[Module, bytes]]) -> Packed:
    files = {_path(module): data for module, data in found.values()}
    digest = hashlib.sha256()
    for path, data in sorted(files.items()):
        digest.update(path.encode() + b"\0" + hashlib.sha256(data).digest())
    version = f"0+{digest.hexdigest()[:16]}"
    folder = f"{_DISTRIBUTION}-{version}.dist-info"
    files[f"{folder}/METADATA"] = _METADATA.format(name=_DISTRIBUTION.replace("_", "-"), version=version).encode()
    files[f"{folder}/WHEEL"] = _WHEEL.encode()
    record = f"{folder}/RECORD"
    lines = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in sorted(files.items())]
    files[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    buffer = io.BytesIO()
    # Not compressed, as the output of zlib may differ between machines.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as packed:
        for path, data in sorted(files.items()):
            info = zipfile.ZipInfo(path, _TIME)
            info.external_attr = 0o644 << 16
            packed.writestr(info, data)
    return Packed(f"{_DISTRIBUTION}-{version}-py3-none-any.whl", buffer.getvalue(), tuple(sorted(found)))


def _path(module: Module) -> str:
    place = Path(*module.name.split("."))
    return (place / "__init__.py" if module.folders else place.with_suffix(".py")).as_posix()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
