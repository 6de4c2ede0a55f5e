"""The contents of the sdist and the wheel, and the use of the wheel alone."""

from __future__ import annotations

import re
import tarfile
import zipfile

import pytest
from packaging.requirements import Requirement

from tests.root import ROOT
from tests.stack import HERE, pins
from tests.wheel.conftest import PACKAGES
from tfx_estimator.pipeline.base.stack.stacks import STACKS

pytestmark = [pytest.mark.e2e]


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
    for name in ("__init__.py", "__main__.py", "estimator.py", "testing.py", "py.typed"):
        expected[f"tfx_estimator/{name}"] = (ROOT / "src" / "tfx_estimator" / name).read_bytes()
    assert {name: data for name, data in wheel.items() if ".dist-info/" not in name} == expected
    plugins = wheel["tfx_estimator-0.2.0.dist-info/entry_points.txt"].decode().partition("[pytest11]\n")[2]
    assert plugins.strip() == "tfx_estimator = tfx_estimator.pipeline.testing.plugin"


def test_an_sdist_has_files_instead_of_links_and_builds_the_same_wheel(distributions):
    with tarfile.open(distributions.sdist) as archive:
        assert [member.name for member in archive if not (member.isfile() or member.isdir())] == []
    wheel, other = files_of(distributions.wheel), files_of(distributions.wheel_of_sdist)
    assert wheel == other


@pytest.mark.parametrize("stack", STACKS, ids=lambda stack: stack.name)
def test_the_extra_locked_is_the_lock_file(distributions, stack):
    metadata = files_of(distributions.wheel)["tfx_estimator-0.2.0.dist-info/METADATA"].decode()
    required = map(Requirement, re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE))
    extra = {"extra": f"{stack.extra}-locked"}
    locked = [f"{each.name}{each.specifier}" for each in required if each.marker and each.marker.evaluate(extra)]
    assert len(locked) > 180
    assert sorted(locked) == sorted(pins(stack))


def test_the_wheel_requires_only_what_the_declaration_needs(distributions):
    metadata = files_of(distributions.wheel)["tfx_estimator-0.2.0.dist-info/METADATA"].decode()
    required = map(Requirement, re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE))
    assert sorted(each.name for each in required if each.marker is None) == ["packaging", "pyyaml", "rich"]


def test_the_declaration_needs_no_extra_and_other_commands_name_theirs(bare_environment, distributions, tmp_path):
    for words in (["validate", "mnist"], ["show", "digits"], ["schema"], ["compile", "--help"]):
        bare_environment.run("tfx-estimator", *words, cwd=tmp_path)
    for words in (["run", "digits"], ["compile", "digits", "--target", "vertex"], ["validate", "digits", "--deep"]):
        output = bare_environment.run("tfx-estimator", *words, cwd=tmp_path, code=6)
        assert f'pip install "{distributions.wheel}[{HERE.extra}-locked]"' in output


def test_constraints_need_no_extra(bare_environment, tmp_path):
    assert sorted(bare_environment.run("tfx-estimator", "constraints", cwd=tmp_path).splitlines()) == sorted(pins(HERE))


def test_an_environment_with_the_wheel_uses_the_wheel(environment, tmp_path):
    code = "import tfx_estimator, tfx_estimator.pipeline.config as c; print(tfx_estimator.__file__, c.__file__)"
    folder = environment.site_packages / "tfx_estimator"
    output = environment.run("python", "-c", code, cwd=tmp_path)
    assert output.strip() == f"{folder}/__init__.py {folder}/pipeline/config/__init__.py"
