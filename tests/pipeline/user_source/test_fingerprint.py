"""The fingerprint of source code changes with every relevant byte, and with nothing else."""

from __future__ import annotations

import ast
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.folders import write_files
from tests.root import ROOT, run_python
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.user_source.fingerprint import collect_sources, fingerprint_source
from tfx_estimator.pipeline.user_source.imports import text_of

TREE = {
    "fpnets/__init__.py": "",
    "fpnets/small.py": "import os, json\nimport yaml\nfrom fpnets.parts import block\ndef net(n): return block(n)\n",
    "fpnets/parts/__init__.py": "from .block import block\n",
    "fpnets/parts/block.py": "def block(n):\n    from .. import late\n    import fphelp.deep\n    return n\n",
    "fpnets/late.py": "import importlib\nplugin = importlib.import_module('fpplugin')\n",
    "fpnets/unused.py": "x = 1\n",
    "fphelp/deep.py": "from fpnets import small\ntry:\n    import fpnowhere\nexcept ImportError: pass\n",
    "fpplugin.py": "VALUE = 1\n",
    "fpstray.py": "x = 1\n",
}
NOT_IMPORTED = ("fpnets/unused.py", "fpstray.py", "fpnets/data.json")
TARGET = "fpnets.small:net"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A user's package, with a helper two imports away, a cycle, late and missing imports."""
    return write_files(tmp_path / "tree", TREE)


def test_it_follows_the_users_own_imports_and_stops_at_cycles(tree):
    found = collect_sources(TARGET, [str(tree)])
    parts = ("fpnets", "fpnets.late", "fpnets.parts", "fpnets.parts.block", "fpnets.small")
    assert set(found) == {*parts, "fphelp.deep", "fpplugin"}
    assert found["fpplugin"] == b"VALUE = 1\n"


@pytest.mark.parametrize("name", [*TREE, "fpnets/data.json"])
def test_a_change_in_an_imported_file_changes_it_and_no_other_change_does(tree, name):
    before = fingerprint_source(TARGET, [str(tree)])
    with open(tree / name, "a") as file:
        file.write("# one comment\n")
    assert (fingerprint_source(TARGET, [str(tree)]) == before) is (name in NOT_IMPORTED)


def test_time_and_location_do_not_count(tree, tmp_path, monkeypatch):
    before = fingerprint_source(TARGET, [str(tree)])
    for file in tree.rglob("*.py"):
        os.utime(file, (1, 1))
    assert fingerprint_source(TARGET, [str(tree)]) == before
    shutil.move(tree, tmp_path / "elsewhere")
    monkeypatch.chdir("/")
    assert fingerprint_source(TARGET, [str(tmp_path / "elsewhere")]) == before


def test_the_position_of_bytes_counts(tree):
    before = fingerprint_source(TARGET, [str(tree)])
    plugin, late = (tree / "fpplugin.py").read_text(), (tree / "fpnets/late.py").read_text()
    (tree / "fpplugin.py").write_text(plugin + "import importlib\n")
    (tree / "fpnets/late.py").write_text(late.replace("import importlib\n", "", 1))
    assert fingerprint_source(TARGET, [str(tree)]) != before


def test_other_processes_agree_and_import_nothing_of_the_users(tree):
    (tree / "fpplugin.py").write_text("raise RuntimeError('imported')\n")
    here = fingerprint_source(TARGET, [str(tree)])
    code = (
        "import sys; from tfx_estimator.pipeline.user_source.fingerprint import fingerprint_source as f;"
        f"print(f({TARGET!r}, [{str(tree)!r}])); assert not any(m.startswith('fp') for m in sys.modules), sys.modules"
    )
    for seed in ("1", "2"):
        there = run_python("-c", code, cwd=Path("/"), PYTHONHASHSEED=seed)
        assert there.stdout.strip() == here, there.stderr


def test_a_module_file_and_its_neighbours(tree):
    (tree / "module.py").write_text("import fpplugin\ndef run_fn(a): pass\n")
    file = str(tree / "module.py")
    assert set(collect_sources(file)) == {"module", "fpplugin"}
    before = fingerprint_source(file)
    (tree / "fpplugin.py").write_text("VALUE = 2\n")
    assert fingerprint_source(file) != before


def test_a_module_file_inside_a_package_has_relative_imports(tree):
    found = collect_sources(str(tree / "fpnets" / "parts" / "block.py"))
    assert {"fpnets.parts.block", "fpnets.late", "fphelp.deep"} <= set(found)


def test_a_relative_import_that_leaves_its_package_is_left_out(tree):
    with open(tree / "fpplugin.py", "a") as file:
        file.write("from ....far import away\n")
    assert "fpplugin" in collect_sources(TARGET, [str(tree)])


def test_a_file_that_does_not_parse_still_counts(tree):
    before = fingerprint_source(TARGET, [str(tree)])
    (tree / "fpplugin.py").write_text("def (\n")
    damaged = fingerprint_source(TARGET, [str(tree)])
    (tree / "fpplugin.py").write_text("def ((\n")
    assert len({before, damaged, fingerprint_source(TARGET, [str(tree)])}) == 3


def test_the_shipped_code_includes_its_own_packages_and_nothing_installed():
    found = set(collect_sources("tfx_estimator.model_fn.networks:mnist_cnn"))
    assert {"tfx_estimator.model_fn", "tfx_estimator.model_fn.networks"} <= found
    found |= set(collect_sources("tfx_estimator.data.preprocessing:preprocessing_fn"))
    assert {name.partition(".")[0] for name in found} == {"tfx_estimator"}


def test_the_shipped_code_has_the_text_of_python_3_10_on_every_python():
    # Python 3.13's `ast.dump` omits empty fields, and 3.12's has type parameters.
    shown = {"show_empty": True} if sys.version_info >= (3, 13) else {}
    files = [file for folder in ("components/trainer", "data", "model_fn") for file in (ROOT / folder).glob("**/*.py")]
    assert len(files) > 100
    for file in files:
        tree = ast.parse(file.read_bytes())
        assert text_of(tree) == ast.dump(tree, **shown).replace(", type_params=[]", ""), file
    assert collect_sources("tfx_estimator.model_fn")["tfx_estimator.model_fn"] == b"Module(body=[], type_ignores=[])"


@pytest.mark.parametrize("target", ["fpnowhere.net:f", "no/such/file.py", "fpnowhere"])
def test_a_missing_target_is_refused(target):
    with pytest.raises(DeclarationError, match="there is no source of"):
        fingerprint_source(target)


@pytest.mark.parametrize(
    "listing",
    [
        '__all__ = ["one", "two"]',
        '__all__: list = ["one"]\n__all__ += ("two",)',
        '__all__ = ["one"]\n__all__.append("two")',
    ],
)
def test_a_star_import_from_a_package_is_followed(tmp_path, listing):
    empty = dict.fromkeys(("__init__.py", "parts/one.py", "parts/two.py", "parts/three.py"), "")
    package = {**empty, "net.py": "from fppkg.parts import *\n", "parts/__init__.py": f"{listing}\n"}
    write_files(tmp_path / "fppkg", package)
    parts = {"fppkg", "fppkg.net", "fppkg.parts", "fppkg.parts.one", "fppkg.parts.two"}
    assert set(collect_sources("fppkg.net:f", [str(tmp_path)])) == parts


@pytest.mark.parametrize(
    "call",
    [
        "import_module('.late', __package__)",
        "importlib.import_module('.late', package='fppkg')",
        "importlib.import_module(name='.late', package=__spec__.parent)",
        "import_module('..late', 'fppkg.deep')",
        "import_module('.late', __name__.rpartition('.')[0]) or import_module('fppkg.late')",
    ],
)
def test_a_relative_import_by_a_call_is_followed(tmp_path, call):
    net = f"import importlib\nfrom importlib import import_module\n{call}\n"
    write_files(tmp_path / "fppkg", {"__init__.py": "", "late.py": "", "net.py": net})
    assert "fppkg.late" in collect_sources("fppkg.net:f", [str(tmp_path)])
