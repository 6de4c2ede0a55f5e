"""What the sdist and the wheel hold, and what the wheel can do by itself."""

from __future__ import annotations

import re
import tarfile
import zipfile

import pytest

from tests.root import ROOT
from tests.wheel.conftest import PACKAGES

pytestmark = [pytest.mark.e2e]

LOCKED = sorted(re.findall(r"^[\w.-]+==[^\s\\]+", (ROOT / "requirements" / "legacy.lock").read_text(), re.MULTILINE))


def files_of(wheel) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_wheel_holds_every_file_under_one_name(distributions):
    wheel = files_of(distributions.wheel)
    assert {name.split("/")[0] for name in wheel} == {"tfx_estimator", "tfx_estimator-0.2.0.dist-info"}
    folders = {package: ROOT / package for package in PACKAGES}
    expected = {
        f"tfx_estimator/{package}/{file.relative_to(folder)}": file.read_bytes()
        for package, folder in folders.items()
        for file in folder.rglob("*")
        if file.is_file() and file.suffix != ".pyc"
    }
    for name in ("__init__.py", "__main__.py", "estimator.py", "py.typed"):
        expected[f"tfx_estimator/{name}"] = (ROOT / "src" / "tfx_estimator" / name).read_bytes()
    assert {name: data for name, data in wheel.items() if ".dist-info/" not in name} == expected


def test_an_sdist_holds_files_in_place_of_links_and_makes_the_same_wheel(distributions):
    with tarfile.open(distributions.sdist) as archive:
        assert [member.name for member in archive if not (member.isfile() or member.isdir())] == []
    wheel, other = files_of(distributions.wheel), files_of(distributions.wheel_of_sdist)
    assert wheel == other


def test_the_extra_locked_is_the_lock_file(distributions):
    metadata = files_of(distributions.wheel)["tfx_estimator-0.2.0.dist-info/METADATA"].decode()
    pins = re.findall(r'^Requires-Dist: (\S+==\S+); extra == "locked"$', metadata, re.MULTILINE)
    assert len(pins) > 200
    assert sorted(pins) == LOCKED


def test_constraints_need_nothing_but_the_wheel(bare_environment, tmp_path):
    assert sorted(bare_environment.run("tfx-estimator", "constraints", cwd=tmp_path).splitlines()) == LOCKED


def test_an_environment_with_the_wheel_uses_the_wheel(environment, tmp_path):
    code = "import tfx_estimator, tfx_estimator.pipeline.config as c; print(tfx_estimator.__file__, c.__file__)"
    folder = environment.site_packages / "tfx_estimator"
    said = environment.run("python", "-c", code, cwd=tmp_path)
    assert said.strip() == f"{folder}/__init__.py {folder}/pipeline/config/__init__.py"
