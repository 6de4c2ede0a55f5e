"""The package like for its users: built, installed, and used in projects with their own `pipeline`.

The environment has the wheel and nothing else of this project. A .pth file adds the dependencies from the tests'
environment: Python does not read .pth files of folders that are added so, which keeps the editable installation
out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.root import ROOT
from tfx_estimator.pipeline.base.stack.stacks import KERAS

# Sources of the build; without other files of a checkout.
SOURCES = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "src", "requirements")
PACKAGES = ("pipeline", "components", "model_fn", "data")
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"
# Careless packages install such folders: they must not hide the user's own. (One named `data` hides a `data/` without
# __init__.py anywhere on Python's path.)
STRAY = "raise ImportError('a stray package of site-packages was imported')\n"
# Like pip.
TFX_SCRIPT = "#!{python}\nimport sys\nfrom tfx.tools.cli.cli_main import cli_group\nsys.exit(cli_group())\n"


@dataclass(frozen=True)
class Distributions:
    sdist: Path
    wheel: Path
    wheel_of_sdist: Path


class Environment:
    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def site_packages(self) -> Path:
        return Path(sysconfig.get_path("purelib", vars={"base": str(self.path)}))

    def run(self, *command: str, cwd: Path, code: int = 0, seconds: float = 560, **environment: Any) -> str:
        """Runs one of its commands, like in an activated environment."""
        bin_folder = self.path / "bin"
        # The tests' own process sets it to choose its Keras.
        inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", KERAS)}
        done = subprocess.run(
            [str(bin_folder / command[0]), *command[1:]],
            env={**inherited, "PATH": f"{bin_folder}:{os.environ['PATH']}", **environment},
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """An sdist and a wheel from the checkout, and a wheel from the sdist."""
    folder = tmp_path_factory.mktemp("build")
    checkout = folder / "checkout"
    checkout.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in (*SOURCES, *PACKAGES):
        if (ROOT / name).is_dir():
            # Keeps links: setuptools has to follow them.
            shutil.copytree(ROOT / name, checkout / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / name, checkout)
    # Like after an earlier build.
    stale = checkout / "build" / "lib" / "tfx_estimator" / "gone.py"
    stale.parent.mkdir(parents=True)
    stale.touch()
    sdist = _build("build_sdist", checkout, folder / "sdist")
    shutil.unpack_archive(sdist, folder / "unpacked")
    unpacked = next((folder / "unpacked").iterdir())
    return Distributions(
        sdist,
        _build("build_wheel", checkout, folder / "wheel"),
        _build("build_wheel", unpacked, folder / "wheel_of_sdist"),
    )


@pytest.fixture(scope="session")
def bare_environment(distributions: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the wheel and its dependencies without any extra."""
    environment = _install(distributions.wheel, tmp_path_factory.mktemp("environment") / "bare")
    (own,) = metadata.distributions(name="tfx-estimator", path=[str(environment.site_packages)])
    waiting, seen = [*map(Requirement, own.requires or ())], set()
    while waiting:
        requirement = waiting.pop()
        if requirement.name in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(requirement.name)
        found = metadata.distribution(requirement.name)
        waiting += map(Requirement, found.requires or ())
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            (environment.site_packages / top).symlink_to(Path(str(found.locate_file(top))))
    return environment


@pytest.fixture(scope="session")
def environment(distributions: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the wheel and all that it needs."""
    environment = _install(distributions.wheel, tmp_path_factory.mktemp("environment") / "whole")
    (environment.site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for name in ("models", "components", "pipeline"):
        (environment.site_packages / f"{name}.py").write_text(STRAY)
    script = environment.path / "bin" / "tfx"
    script.write_text(TFX_SCRIPT.format(python=environment.path / "bin" / "python"))
    script.chmod(0o755)
    # TFX's command line queries it for installed packages: here, those of the tests' environment.
    pip = environment.path / "bin" / "pip"
    pip.write_text(f'#!/bin/sh\nexec {sys.executable} -m pip "$@"\n')
    pip.chmod(0o755)
    return environment


def _build(hook: str, source: Path, output: Path) -> Path:
    """Calls a hook of the build backend like pip, with the packages installed here."""
    output.mkdir()
    done = subprocess.run([sys.executable, "-c", BUILD, hook, str(output)], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(output.iterdir())


def _install(wheel: Path, path: Path) -> Environment:
    venv.create(path, symlinks=True)
    command = [sys.executable, "-m", "pip", "--python", str(path), "install", "--no-index", "--no-deps", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return Environment(path)
