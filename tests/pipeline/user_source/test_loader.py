"""The user's modules import each other first and hide nothing from others, also in a fresh interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.folders import write_files
from tests.root import run_python
from tfx_estimator.pipeline.user_source import loader

FILES = {
    "networks.py": """
import csv, json.own
from json import own as again, texts
from profile import UNITS
import wave.inner as inner
import only_mine.deep

def net():
    import statistics as numbers
    from tree import DEPTH
    return [numbers.mean_of([1, 3]), UNITS, DEPTH, json.own.NAME, again.NAME, texts, inner.NAME, only_mine.deep.NAME]
""",
    # It imports a standard module that needs the one which the next file would hide.
    "statistics.py": "import cProfile, random\ndef mean_of(values):\n    return sum(values) / len(values)\n",
    "profile.py": "UNITS = 16\n",
    "tree.py": "DEPTH = 2\n",
    "csv.py": "",
    "json/__init__.py": "texts = 'of a package'\n",
    "json/own.py": "NAME = 'own'\n",
    "wave/__init__.py": "",
    "wave/inner.py": "from .more import NAME\n",
    "wave/more.py": "NAME = 'relative'\n",
    "only_mine/deep.py": "NAME = 'namespace'\n",
}


@pytest.fixture
def prints(tmp_path):
    """Runs code in a fresh process that finds modules next to the declaration."""
    write_files(tmp_path, FILES)

    def ask(code: str, *installed: str) -> str:
        # Also in a child of such a process: the folders are passed on.
        start = f"print(subprocess.run(loader.fresh_python({code!a}), stdout=-1, text=True, check=True).stdout)"
        imports = "import subprocess; from tfx_estimator.pipeline.user_source import loader"
        before = f"sys.path += {list(installed)}; loader.install([{str(tmp_path)!a}]); {imports}; {start}"
        command = loader.fresh_python(before)
        return subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

    return ask


def test_the_users_modules_import_each_other_before_standard_and_installed_ones(prints):
    assert prints("import networks; print(networks.net())") == (
        "[2.0, 16, 2, 'own', 'own', 'of a package', 'relative', 'namespace']"
    )


def test_other_modules_do_not_see_them(prints):
    code = (
        "import networks; networks.net(); import cProfile, csv, json, profile, statistics, tree, wave; "
        "print(statistics.mean([1, 2]), profile.Profile, json.loads('3'), tree.flatten([[1], 2]), csv.reader, wave)"
    )
    assert prints(code).startswith("1.5 <class 'profile.Profile'> 3 [1, 2] <built-in function reader> <module 'wave'")


@pytest.mark.parametrize("name", ["networks", "only_mine.deep", "sys", "no_such"])
def test_a_unique_name_stays_importable(prints, name):
    assert prints(f"print(loader.import_name({name!r}))") == name


def test_a_module_that_would_hide_another_is_found_through_the_loader(prints):
    code = "import importlib; print(importlib.import_module(loader.import_name('profile')).UNITS)"
    assert prints(code) == "16"


def test_modules_may_import_each_other_in_a_circle(prints, tmp_path):
    circle = "import chunk\n\n\ndef value():\n    return chunk.VALUE\n"
    write_files(tmp_path, {"chunk.py": "import circle\nVALUE = 1\n", "circle.py": circle})
    code = "import importlib, circle; importlib.import_module(loader.import_name('chunk')); print(circle.value())"
    assert prints(code) == "1"


def test_packages_installed_in_the_users_folder_are_not_the_users(prints, tmp_path):
    packages = {
        "a_library.py": "import statistics\nMEAN = statistics.mean([1, 2])\n",
        "networks.py": "raise ImportError('a stray package of site-packages was imported')\n",
    }
    installed = write_files(tmp_path / ".venv" / "site-packages", packages)
    code = (
        "import a_library, importlib; networks = importlib.import_module(loader.import_name('networks')); "
        "print(a_library.MEAN, networks.net()[3])"
    )
    assert prints(code, str(installed)) == "1.5 own"


def test_the_current_folder_hides_nothing_from_the_command_line(tmp_path):
    write_files(tmp_path, dict.fromkeys(("argparse.py", "yaml.py"), "1 / 0\n"))
    run_python("-m", "tfx_estimator", "show", "digits", cwd=tmp_path, PYTHONPATH=loader.python_path(), code=0)


TELL = (
    "import json, sys, tfx_estimator, own_of_a_colon; "
    "print(json.dumps([sys.path, tfx_estimator.__file__, own_of_a_colon.NAME, sys.argv[1:]]))"
)


def test_it_finds_the_same_modules_in_the_same_order(tmp_path, monkeypatch):
    import tfx_estimator

    folder = write_files(tmp_path / "with:colon", {"own_of_a_colon.py": "NAME = 'own'\n"})
    # The current folder holds a module that would hide another if it came first.
    (tmp_path / "json.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    # As in a process without user imports so far: later entries of `sys.path` are the user's.
    monkeypatch.setattr(sys, "path_hooks", [hook for hook in sys.path_hooks if hook is not loader._find_in])
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path, "", str(folder), Path("no text")])
    environment = {**os.environ, "PYTHONPATH": loader.python_path()}
    command = [*loader.fresh_python(TELL), "argument"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found, package, name, arguments = json.loads(done.stdout)
    assert found == list(dict.fromkeys(path or str(tmp_path) for path in sys.path if isinstance(path, str)))
    assert (package, name, arguments) == (tfx_estimator.__file__, "own", ["argument"])
    # A child process finds all except the folder with a colon.
    assert loader.python_path().split(":") == [path for path in found if ":" not in path]
