"""The user's modules in one wheel."""

from __future__ import annotations

import io
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES

import pytest

from tests.folders import write_files
from tests.root import run_python
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.user_source.pack import module_name, pack


def test_imported_modules_are_packed_and_install(tmp_path):
    write_files(tmp_path, {"net.py": "import parts\nimport numpy\n", "parts.py": "VALUE = 3\n", "other.py": ""})
    packed = pack(["net:f"], [str(tmp_path)])
    assert packed.modules == ("net", "parts")
    (tmp_path / packed.name).write_bytes(packed.data)
    target = tmp_path / "installed"
    install = ("-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(target))
    run_python(*install, str(tmp_path / packed.name), code=0)
    assert (target / "parts.py").read_text() == "VALUE = 3\n"
    assert not (target / "other.py").exists()


def test_equal_modules_give_equal_bytes_and_different_ones_another_name(tmp_path):
    (tmp_path / "net.py").write_text("X = 1\n")
    first, second = (pack(["net:f"], [str(tmp_path)]) for _ in range(2))
    assert first == second
    (tmp_path / "net.py").write_text("X = 2\n")
    changed = pack(["net:f"], [str(tmp_path)])
    assert changed.name != first.name


def test_a_module_file_in_a_package_keeps_its_name(tmp_path):
    write_files(tmp_path / "pkg", {"__init__.py": "", "train.py": "from pkg import parts\n", "parts.py": ""})
    file = str(tmp_path / "pkg" / "train.py")
    assert module_name(file) == "pkg.train"
    packed = pack([file])
    with zipfile.ZipFile(io.BytesIO(packed.data)) as files:
        assert {"pkg/__init__.py", "pkg/train.py", "pkg/parts.py"} <= {*files.namelist()}


def test_modules_of_this_project_are_not_packed():
    ours = ["tfx_estimator.model_fn.networks:mnist_cnn", "tfx_estimator.data.preprocessing:preprocessing_fn"]
    assert pack(ours) is None


def test_compiled_code_is_refused(tmp_path):
    (tmp_path / f"fast{EXTENSION_SUFFIXES[0]}").touch()
    (tmp_path / "net.py").write_text("import fast\n")
    with pytest.raises(DeclarationError, match="fast is compiled code"):
        pack(["net:f"], [str(tmp_path)])


def test_two_modules_of_one_name_are_refused(tmp_path):
    uses = "import utils\n"
    write_files(tmp_path, {"a/utils.py": "", "b/utils.py": "", "a/main.py": uses, "b/second.py": uses})
    with pytest.raises(DeclarationError, match="two modules are called utils"):
        pack([str(tmp_path / "a" / "main.py"), str(tmp_path / "b" / "second.py")])


@pytest.mark.parametrize("file", ["yaml.py", "numpy/__init__.py", "google.py", "tree.py"])
def test_a_module_that_hides_a_package_of_the_image_is_refused(tmp_path, file):
    name = file.partition("/")[0].removesuffix(".py")
    write_files(tmp_path, {file: "", "net.py": f"import {name}\n"})
    with pytest.raises(DeclarationError, match=f"the module {name}, .*, has the name of an installed package"):
        pack(["net:f"], [str(tmp_path)])


def test_folders_named_like_this_projects_are_packed(tmp_path):
    names = ("data", "model_fn", "pipeline", "components", "tests", "hypothesis")
    (tmp_path / "net.py").write_text("".join(f"from {name} import mine\n" for name in names))
    for name in names:
        write_files(tmp_path / name, {"__init__.py": "", "mine.py": ""})
    packed = pack(["net:f"], [str(tmp_path)])
    assert {f"{name}.mine" for name in names} <= {*packed.modules}
