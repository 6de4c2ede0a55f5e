"""The image, built from Dockerfile by Debian's tools on a base from debootstrap, and run by podman."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.root import ROOT
from tfx_estimator.pipeline.base.stack.stacks import LEGACY, STACKS

_TOOLS = ("buildah", "podman", "runc", "debootstrap")
# Libraries that CPython's standard library is linked with.
_LIBRARIES = "ca-certificates,libssl3,libffi8,libsqlite3-0,libbz2-1.0,liblzma5,zlib1g,libreadline8,libexpat1"
# Debian 13 has Python 3.13; its headers are for pyfarmhash.
_PYTHON = "ca-certificates,python3,python3-venv,python3-dev"
_BASE, _IMAGE = "localhost/tfx-estimator-tests-base", "localhost/tfx-estimator-tests"
# This machine's access to packages; nothing of it stays in the image.
_MOUNTED = ("/etc/ssl/certs", "/etc/pip.conf")
_PODMAN = ("podman", "--runtime", "runc", "--cgroup-manager", "cgroupfs", "--events-backend", "file")
_LIMITS = ("--ulimit", "nofile=10000:10000", "--ulimit", "nproc=20000:20000")


def run(*command: str | Path, seconds: float = 600) -> str:
    # Not the tests' temporary folder: it is missing inside of a chroot, and may be too small for an image.
    environment = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
    options = {"cwd": ROOT, "env": environment, "capture_output": True, "text": True, "timeout": seconds}
    done = subprocess.run([*map(str, command)], check=False, **options)
    assert done.returncode == 0, (command, done.stdout[-4000:], done.stderr[-4000:])
    return done.stdout


class Image:
    def __init__(self, name: str) -> None:
        self.name = name

    def command(
        self, work: Path, *arguments: str, entry: str = "", options: tuple[str, ...] = (), network: str = "none"
    ) -> list[str]:
        """Returns the command of a container: not root, a read-only root, no network."""
        entered = ("--entrypoint", entry) if entry else ()
        kept = (
            "--read-only",
            "--tmpfs",
            "/tmp",
            "--network",
            network,
            "--cap-drop",
            "all",
            "--volume",
            f"{work}:/work",
        )
        return [*_PODMAN, "run", "--rm", *_LIMITS, *kept, *entered, *options, self.name, *arguments]

    def run(self, work: Path, *arguments: str, entry: str = "", seconds: float = 600) -> str:
        return run(*self.command(work, *arguments, entry=entry), seconds=seconds)

    @property
    def megabytes(self) -> float:
        """Its size on disk: the sum of its layers."""
        return int(run("podman", "image", "inspect", "--format", "{{.Size}}", self.name)) / 1e6


@pytest.fixture(scope="session", params=[stack.name for stack in STACKS])
def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """Builds the image of each stack; TFX_ESTIMATOR_IMAGE names an existing one of any stack."""
    missing = [tool for tool in _TOOLS if not shutil.which(tool)]
    if missing or os.getuid() != 0:
        pytest.skip(f"needs root and {', '.join(missing) or 'its tools'} (Debian: apt-get install {' '.join(_TOOLS)})")
    if request.param == LEGACY.name and not LEGACY.has_python(sys.version_info[:2]):
        pytest.skip("its base has the Python of these tests, which is none of that stack's")
    if name := os.environ.get("TFX_ESTIMATOR_IMAGE"):
        yield Image(name)
        return
    folder = tmp_path_factory.mktemp("image")
    _make_base(folder / "base", request.param)
    (folder / "uv.toml").write_text("native-tls = true\n")
    volumes = [f"{path}:{path}:ro" for path in _MOUNTED if os.path.exists(path)]
    volumes.append(f"{folder}/uv.toml:/etc/uv/uv.toml:ro")
    mounts = [option for volume in volumes for option in ("--volume", volume)]
    network = ("--isolation", "chroot", "--network", "host")
    try:
        arguments = ("--build-arg", f"BASE={_BASE}", "--build-arg", f"STACK={request.param}")
        built = ("--layers", *arguments, "--tag", _IMAGE)
        run("buildah", "bud", *network, *mounts, *built, ".", seconds=1500)
        yield Image(_IMAGE)
    finally:
        _remove()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    os.chown(folder, 10001, 10001)
    return folder


def _remove() -> None:
    """Removes the image, its base, and the unnamed intermediate stages, which are larger than both.

    Of unnamed images, only those that no container uses: another build may be running.
    """
    listed = ("podman", "images", "--quiet", "--all", "--filter", f"since={_BASE}", "--filter", "dangling=true")
    stages = subprocess.run(listed, capture_output=True, text=True, check=False).stdout.split()
    for names in (("--force", _IMAGE), *((each,) for each in stages), ("--force", _BASE)):
        subprocess.run(["podman", "image", "rm", *names], capture_output=True, check=False)


def _make_base(folder: Path, stack: str) -> None:
    if stack == LEGACY.name:
        run("debootstrap", "--variant=minbase", f"--include={_LIBRARIES}", "bookworm", folder)
        _copy_python(folder)
    else:
        run("debootstrap", "--variant=minbase", f"--include={_PYTHON}", "trixie", folder)
    # Like in published images, without apt's downloads.
    run("chroot", folder, "apt-get", "clean")
    shutil.rmtree(folder / "var" / "lib" / "apt" / "lists")
    archive = folder.with_suffix(".tar")
    run("tar", "-C", folder, "-cf", archive, ".")
    shutil.rmtree(folder)
    run("podman", "import", archive, _BASE)
    archive.unlink()


def _copy_python(folder: Path) -> None:
    """Copies the Python of these tests: Debian 12 has no Python 3.10."""
    home, local = Path(sys.base_prefix), folder / "usr" / "local"
    unused = shutil.ignore_patterns("site-packages", "test", "__pycache__", "config-3.10*")
    shutil.copytree(home / "lib" / "python3.10", local / "lib" / "python3.10", ignore=unused, symlinks=True)
    shutil.copytree(home / "include", local / "include", dirs_exist_ok=True)
    shutil.copy2(home / "bin" / "python3.10", local / "bin")
    (local / "bin" / "python3").symlink_to("python3.10")
    for library in (home / "lib").glob("libpython3*"):
        shutil.copy2(library, local / "lib", follow_symlinks=False)
    run("chroot", folder, "ldconfig")
