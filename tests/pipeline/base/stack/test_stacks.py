"""The stack is detected in one place, and no other module checks versions."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from importlib import metadata

import pytest

from tests.folders import write_files
from tests.root import ROOT
from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.report.report import write_report
from tfx_estimator.pipeline.report.source import Run
from tfx_estimator.pipeline.run.summary import Summary

# The modules that may check versions.
ROOMS = ("pipeline/base/stack/", "pipeline/doctor/", "model_fn/bridge/estimator")
FOLDERS = ("pipeline", "components", "model_fn", "data", "src")
OF_METADATA = ("version", "version_of")


def checks_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Finds code that compares or parses a version; versions in messages do not count."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            if name.endswith(("sys.version_info", "sys.hexversion", "tf.version")) or ".__version__." in name:
                yield node.lineno, name
        elif isinstance(node, ast.ImportFrom) and node.module == "sys":
            yield from ((node.lineno, each.name) for each in node.names if each.name in ("version_info", "hexversion"))
        elif isinstance(node, (ast.Compare, ast.Match)):
            for each in ast.walk(node.subject if isinstance(node, ast.Match) else node):
                is_version = isinstance(each, ast.Attribute) and each.attr == "__version__"
                is_asked = isinstance(each, ast.Call) and ast.unparse(each.func).rpartition(".")[2] in OF_METADATA
                if is_version or is_asked:
                    yield node.lineno, ast.unparse(each)


def test_only_the_stack_and_the_doctor_check_versions():
    found = []
    for folder in FOLDERS:
        # Those in src are links to the others.
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if not name.startswith(ROOMS):
                found += [(name, line, what) for line, what in checks_in(ast.parse(path.read_text(encoding="utf-8")))]
    assert found == []


def test_this_is_the_stack_whose_tfx_is_installed():
    here = stacks.current()
    assert here in stacks.STACKS
    assert (metadata.version("tfx"), metadata.version("tensorflow")) == (here.tfx, here.tensorflow)
    assert here.has_python(sys.version_info[:2])
    assert here.words == f"{here.name}: TFX {here.tfx}, TensorFlow {here.tensorflow}"
    assert (ROOT / "requirements" / here.lock).is_file()


def test_every_report_says_which_stack_its_run_was_on(tmp_path):
    assert next(iter(Summary("digits").versions.items())) == ("stack", stacks.current().words)
    run = Run(str(tmp_path / "own" / "logs" / "20261122-010000"), "", {"versions": {"stack": "tfx9: TFX 9"}})
    write_report(run, str(tmp_path / "it.html"))
    assert '<th scope="row">stack</th><td class="text">tfx9: TFX 9</td>' in (tmp_path / "it.html").read_text()


def test_a_stack_has_exactly_its_own_features():
    import tensorflow_model_analysis as tfma
    from tfx.components.trainer import executor

    here = stacks.current()
    assert hasattr(executor, "Executor") == here.has_trainer_fn_executor
    assert hasattr(getattr(tfma, "eval_saved_model", None), "export") == here.has_eval_saved_model


@pytest.fixture
def fresh_stack() -> Iterator[None]:
    """Clears the cached stack before and after."""
    stacks.current.cache_clear()
    yield
    stacks.current.cache_clear()


@pytest.mark.parametrize(
    ("tfx", "python", "glibc", "name"),
    [
        ("1.15.1", (3, 13), "2.41", "tfx1.15"),
        ("1.21.3", (3, 10), "2.36", "tfx1.21"),
        (None, (3, 10), "2.41", "tfx1.15"),
        (None, (3, 11), "2.39", "tfx1.21"),
        (None, (3, 13), "2.41", "tfx1.21"),
        (None, (3, 14), "2.41", "tfx1.21"),
        # Too old for the wheels of the one that has this Python; so another Python is needed.
        (None, (3, 13), "2.36", "tfx1.15"),
        (None, (3, 13), "", "tfx1.21"),
        ("1.14.0", (3, 10), "2.36", "tfx1.15"),
    ],
)
def test_tfx_decides_and_without_it_the_machine(monkeypatch, fresh_stack, tfx, python, glibc, name):
    monkeypatch.setattr(stacks.platform, "libc_ver", lambda: ("glibc", glibc))
    monkeypatch.setattr(stacks, "version_of", {"tfx": tfx}.get)
    monkeypatch.setattr(stacks.sys, "version_info", (*python, 1))
    assert stacks.current().name == name


@pytest.mark.parametrize(
    ("has_tf_keras", "keras", "given", "chosen"),
    [
        (True, "3.15.1", None, "1"),
        (True, "3.15.1", "0", "0"),
        (True, "2.15.0", None, None),
        (True, None, None, None),
        (False, "3.15.1", None, None),
        (False, "2.15.0", None, None),
    ],
)
def test_keras_2_is_chosen_where_there_are_both(monkeypatch, tmp_path, has_tf_keras, keras, given, chosen):
    # Also if it was unset, so that it is restored to unset.
    monkeypatch.setenv(stacks.KERAS, given or "")
    if not given:
        monkeypatch.delenv(stacks.KERAS)
    for name in ["tf_keras"] * has_tf_keras + ["keras"] * bool(keras):
        write_files(tmp_path, {f"{name}/__init__.py": ""})
    (tmp_path / f"keras-{keras}.dist-info").mkdir()
    # Nothing of this environment is importable.
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(sys, "modules", {name: each for name, each in sys.modules.items() if "keras" not in name})
    stacks.choose_keras()
    assert os.environ.get(stacks.KERAS) == chosen
