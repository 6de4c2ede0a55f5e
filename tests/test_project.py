"""Rules for the project as a whole."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.root import ROOT, run_python
from tests.stack import HERE
from tfx_estimator.__main__ import main
from tfx_estimator.data import features
from tfx_estimator.pipeline.base.stack.stacks import STACKS

pytestmark = pytest.mark.unit

PACKAGES = ("pipeline", "components", "model_fn", "data")
LINES = 400
IMPORT_ALL = """
import importlib, json, sys
failed = {}
for name in json.loads(sys.argv[1]):
    try:
        importlib.import_module(name)
    except BaseException as error:
        failed[name] = repr(error)
print(json.dumps(failed))
"""


def sources() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def module_name(path: Path) -> str:
    parts = ("tfx_estimator", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_every_module_imports_and_does_nothing_else() -> None:
    paths = [path for path in sources() if path.name != "__main__.py"]
    modules = [module_name(path) for path in paths]
    assert len(modules) > 40
    done = run_python("-c", IMPORT_ALL, json.dumps(modules), cwd=ROOT, code=0)
    assert done.stdout.count("\n") == 1, f"an import printed something:\n{done.stdout}"
    assert json.loads(done.stdout) == {}


def test_ingestion_and_models_use_the_same_feature_name() -> None:
    from tfx_estimator.model_fn.user_models import keras_model

    assert features.IMAGE == keras_model.IMAGE


def test_every_package_folder_is_a_package() -> None:
    bare = {path.parent for path in sources()} - {path.parent for path in sources() if path.name == "__init__.py"}
    assert not bare, "setup.py finds no package without __init__.py"


def test_files_stay_readable() -> None:
    long = {str(path.relative_to(ROOT)): n for path in sources() if (n := len(path.read_text().splitlines())) > LINES}
    assert not long


def test_names_say_what_they_hold() -> None:
    words = re.compile(r"\b(\w+_)?(told|said|beside)(_\w+)?\b(?=\s*[=:,)(.\[])")
    assert not {(path.name, found[0]) for path in sources() if (found := words.search(path.read_text()))}


def test_locks_match_the_requirements_of_setup() -> None:
    run_python("requirements/check_lock.py", cwd=ROOT, code=0)


@pytest.mark.parametrize(
    ("requirement", "problem"),
    [
        ("tfx==1.14.0", f"tfx=={HERE.tfx} does not satisfy tfx"),
        ("left-pad", "left-pad is missing (needed by setup.py)"),
        ("tensorflow-estimator==2.15.0", "rich==15.0.0 is not needed by setup.py"),
    ],
)
def test_a_lock_out_of_date_is_found(requirement: str, problem: str) -> None:
    code = (
        "import sys; sys.path.insert(0, 'requirements'); import check_lock as c\n"
        f"print(*c.problems([c.Requirement({requirement!r})], c.LOCK.read_text()), sep='\\n')"
    )
    done = run_python("-c", code, cwd=ROOT)
    assert problem in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("name", [f"{stack.name}{kind}" for stack in STACKS for kind in ("", "-dev", "-image")])
def test_a_lock_names_no_registry_and_hashes_everything(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.lock").read_text()
    assert "://" not in text
    entries = re.split(r"\n(?=\S)", text.strip())
    assert len(entries) > 190
    assert all("--hash=sha256:" in entry for entry in entries)


@pytest.mark.parametrize("stack", [stack.name for stack in STACKS])
def test_the_developers_lock_has_the_same_pins_and_hashes_and_more(stack: str) -> None:
    texts = ((ROOT / "requirements" / f"{stack}{kind}.lock").read_text().strip() for kind in ("", "-dev"))
    # A notebook's kernel adds markers for PyPy, which TensorFlow does not support.
    run_time, developers = (set(re.split(r"\n(?=\S)", re.sub(r" ; [^\n]*PyPy[^\n]*", "", text))) for text in texts)
    assert run_time < developers
    more = {entry.partition("==")[0] for entry in developers - run_time}
    assert {"pytest", "pytest-xdist", "mypy", "ruff"} <= more


def test_an_installed_package_is_needed_for_constraints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [])
    assert main(["constraints"]) == 1
    assert "is on the path, but not installed" in capsys.readouterr().err
