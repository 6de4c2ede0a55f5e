"""Finding modules and names without importing them."""

from __future__ import annotations

import ast
import sys

import pytest

from tests.folders import write_files
from tfx_estimator.pipeline.user_source.modules import defined_names, find_module, is_installed


def test_the_first_folder_that_has_the_name_wins(tmp_path):
    write_files(tmp_path, {"one/mymod.py": "", "two/mymod.py": ""})
    found = find_module("mymod", [str(tmp_path / "two"), str(tmp_path / "one")])
    assert found.file == tmp_path / "two" / "mymod.py"


def test_a_folder_without_init_yields_to_a_module_further_on(tmp_path):
    (tmp_path / "one" / "mymod").mkdir(parents=True)
    write_files(tmp_path, {"two/mymod.py": ""})
    assert find_module("mymod", [str(tmp_path / "one"), str(tmp_path / "two")]).file is not None
    assert find_module("mymod", [str(tmp_path / "one")]).file is None


def test_this_projects_package_cannot_be_hidden_by_a_users_folder(tmp_path):
    write_files(tmp_path, {"tfx_estimator/__init__.py": ""})
    assert find_module("tfx_estimator.model_fn.networks", [str(tmp_path)]) is not None


@pytest.mark.parametrize("name", ["pipeline", "components", "model_fn", "data"])
def test_modules_named_like_this_projects_folders_are_the_users(tmp_path, name):
    write_files(tmp_path / name, {"__init__.py": "", "mine.py": ""})
    assert find_module(f"{name}.mine", [str(tmp_path)]).file == tmp_path / name / "mine.py"


@pytest.mark.parametrize("name", ["yaml", "json", "tensorflow.python", "sys", "google.cloud"])
def test_installed_and_standard_modules_are_distinguished(name):
    before = set(sys.modules)
    assert is_installed(find_module(name))
    assert "tensorflow.python" not in set(sys.modules) - before


@pytest.mark.parametrize("name", ["trace", "test", "sched"])
def test_a_users_module_may_have_the_name_of_a_standard_one(tmp_path, name):
    assert is_installed(find_module(name))
    (tmp_path / f"{name}.py").write_text("")
    found = find_module(name, [str(tmp_path)])
    assert found.file == tmp_path / f"{name}.py"
    assert not is_installed(found)


@pytest.mark.parametrize("name", ["no_such_module", "yaml.none", "json.decoder.more", "__main__x", "a..b"])
def test_a_missing_module_is_none(name):
    assert find_module(name) is None


def test_names_defined_at_the_top_level():
    text = """
import a.b, c as d
from e import f, g as h
x, (y, *z) = 1, (2, 3)
v: int = 1
try:
    def tried(): pass
except ImportError as error:
    rescued = 1
else:
    other = 1
async def later(): inner = 1
class K:
    def method(self): pass
with open() as file:
    opened = 1
"""
    names = defined_names(ast.parse(text))
    assert names.functions == {"tried", "later"}
    assert {"a", "d", "f", "h", "x", "y", "z", "v", "rescued", "other", "K", "opened"} <= names.others
    assert not {"inner", "method", "c", "g", "b"} & (names.functions | names.others)
    assert not names.is_open
    assert "anything" not in names
    assert "anything" in defined_names(ast.parse("def __getattr__(name): pass"))
