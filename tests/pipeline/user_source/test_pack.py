"""The user's modules in one wheel."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES

import pytest

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.user_source.pack import module_name, pack

pytestmark = pytest.mark.unit


@pytest.fixture
def write(tmp_path):
    def files(**texts: str) -> str:
        for name, text in texts.items():
            file = tmp_path / name.replace("__", "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.with_suffix(".py").write_text(text)
        return str(tmp_path)

    return files


def test_what_is_imported_travels_and_installs(write, tmp_path):
    folder = write(net="import parts\nimport numpy\n", parts="VALUE = 3\n", other="")
    packed = pack(["net:f"], [folder])
    assert packed is not None
    assert packed.modules == ("net", "parts")
    (tmp_path / packed.name).write_bytes(packed.data)
    target = tmp_path / "installed"
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(target)]
    done = subprocess.run([*command, str(tmp_path / packed.name)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (target / "parts.py").read_text() == "VALUE = 3\n"
    assert not (target / "other.py").exists()


def test_equal_modules_are_equal_bytes_and_others_have_another_name(write):
    folder = write(net="X = 1\n")
    first, second = (pack(["net:f"], [folder]) for _ in range(2))
    assert first == second
    write(net="X = 2\n")
    changed = pack(["net:f"], [folder])
    assert changed is not None
    assert first is not None
    assert changed.name != first.name


def test_a_module_file_in_a_package_keeps_its_name(write, tmp_path):
    write(pkg____init__="", pkg__train="from pkg import parts\n", pkg__parts="")
    (tmp_path / "pkg" / "__init__.py").touch()
    file = str(tmp_path / "pkg" / "train.py")
    assert module_name(file) == "pkg.train"
    packed = pack([file])
    assert packed is not None
    with zipfile.ZipFile(io.BytesIO(packed.data)) as files:
        assert {"pkg/__init__.py", "pkg/train.py", "pkg/parts.py"} <= {*files.namelist()}


def test_what_ships_with_this_project_does_not_travel():
    assert (
        pack(["tfx_estimator.model_fn.networks:mnist_cnn", "tfx_estimator.data.preprocessing:preprocessing_fn"]) is None
    )


def test_compiled_code_is_refused(tmp_path):
    (tmp_path / f"fast{EXTENSION_SUFFIXES[0]}").touch()
    (tmp_path / "net.py").write_text("import fast\n")
    with pytest.raises(DeclarationError, match="fast is compiled code"):
        pack(["net:f"], [str(tmp_path)])


def test_two_modules_of_one_name_are_refused(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "utils.py").write_text("")
        (tmp_path / folder / "main.py" if folder == "a" else tmp_path / folder / "second.py").write_text(
            "import utils\n"
        )
    with pytest.raises(DeclarationError, match="two modules are called utils"):
        pack([str(tmp_path / "a" / "main.py"), str(tmp_path / "b" / "second.py")])


@pytest.mark.parametrize("file", ["yaml.py", "numpy/__init__.py", "google.py", "tree.py"])
def test_a_module_that_hides_a_package_of_the_image_is_refused(write, tmp_path, file):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    name = file.partition("/")[0].removesuffix(".py")
    with pytest.raises(DeclarationError, match=f"the module {name}, .*, has the name of an installed package"):
        pack(["net:f"], [write(net=f"import {name}\n")])


def test_folders_called_as_those_of_this_project_travel(write, tmp_path):
    names = ("data", "model_fn", "pipeline", "components", "tests", "hypothesis")
    folder = write(net="".join(f"from {name} import mine\n" for name in names))
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        (tmp_path / name / "mine.py").touch()
    packed = pack(["net:f"], [folder])
    assert packed is not None
    assert {f"{name}.mine" for name in names} <= {*packed.modules}
