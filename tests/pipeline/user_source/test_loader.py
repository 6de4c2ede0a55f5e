"""The user's modules see each other first, and hide nothing from anybody else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tfx_estimator.pipeline.user_source import loader

pytestmark = pytest.mark.unit

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
    # It imports a module of Python's that needs the one which the next would hide.
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
def asked(tmp_path):
    """Runs code in a fresh process that finds modules beside the declaration."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    def ask(code: str, *installed: str) -> str:
        # In a process that such a process starts: the folders are handed on.
        start = f"print(subprocess.run(loader.fresh_python({code!a}), stdout=-1, text=True, check=True).stdout)"
        imports = "import subprocess; from tfx_estimator.pipeline.user_source import loader"
        before = f"sys.path += {list(installed)}; loader.install([{str(tmp_path)!a}]); {imports}; {start}"
        command = loader.fresh_python(before)
        return subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

    return ask


def test_modules_with_names_of_pythons_and_of_libraries_are_what_the_users_modules_import(asked):
    assert asked("import networks; print(networks.net())") == (
        "[2.0, 16, 2, 'own', 'own', 'of a package', 'relative', 'namespace']"
    )


def test_nobody_else_sees_them(asked):
    code = (
        "import networks; networks.net(); import cProfile, csv, json, profile, statistics, tree, wave; "
        "print(statistics.mean([1, 2]), profile.Profile, json.loads('3'), tree.flatten([[1], 2]), csv.reader, wave)"
    )
    assert asked(code).startswith("1.5 <class 'profile.Profile'> 3 [1, 2] <built-in function reader> <module 'wave'")


@pytest.mark.parametrize("name", ["networks", "only_mine.deep", "sys", "no_such"])
def test_a_name_that_is_nobody_elses_stays(asked, name):
    assert asked(f"print(loader.import_name({name!r}))") == name


def test_a_module_that_would_hide_another_is_found_by_whoever_asks_for_the_users(asked):
    code = "import importlib; print(importlib.import_module(loader.import_name('profile')).UNITS)"
    assert asked(code) == "16"


def test_modules_may_import_each_other_in_a_circle(asked, tmp_path):
    (tmp_path / "chunk.py").write_text("import circle\nVALUE = 1\n")
    (tmp_path / "circle.py").write_text("import chunk\n\n\ndef value():\n    return chunk.VALUE\n")
    code = "import importlib, circle; importlib.import_module(loader.import_name('chunk')); print(circle.value())"
    assert asked(code) == "1"


def test_what_is_installed_in_the_users_folder_is_not_the_users(asked, tmp_path):
    installed = tmp_path / ".venv" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "a_library.py").write_text("import statistics\nMEAN = statistics.mean([1, 2])\n")
    (installed / "networks.py").write_text("raise ImportError('a stray package of site-packages was imported')\n")
    code = (
        "import a_library, importlib; networks = importlib.import_module(loader.import_name('networks')); "
        "print(a_library.MEAN, networks.net()[3])"
    )
    assert asked(code, str(installed)) == "1.5 own"


def test_the_current_folder_hides_nothing_from_the_command_line(tmp_path):
    for name in ("argparse", "yaml"):
        (tmp_path / f"{name}.py").write_text("1 / 0\n")
    environment = {**os.environ, "PYTHONPATH": loader.python_path()}
    done = subprocess.run([sys.executable, "-m", "tfx_estimator", "show", "digits"], cwd=tmp_path, env=environment)
    assert done.returncode == 0
