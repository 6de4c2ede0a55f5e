"""Python on a page compiles, and its imports and calls of this project exist."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import sys
from typing import Any

import pytest

from tests.docs.pages import PAGES, Page
from tests.root import run_python
from tfx_estimator.components.trainer.arguments import read_distribution
from tfx_estimator.pipeline.base.errors import DeclarationError

pytestmark = pytest.mark.unit

OURS = "tfx_estimator"


def _attribute(module: str, name: str) -> Any:
    """Returns a name of a module, which may be a module inside it."""
    found = importlib.import_module(module)
    return getattr(found, name) if hasattr(found, name) else importlib.import_module(f"{module}.{name}")


def check_python(text: str) -> None:
    """Fails if the code does not parse, or a name or parameter of this project that it uses is missing."""
    tree = ast.parse(text)
    imported: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                assert importlib.util.find_spec(alias.name), f"there is no {alias.name}"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == OURS:
            for alias in node.names:
                imported[alias.name] = _attribute(node.module or "", alias.name)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in imported:
            continue
        given = {each.arg: each.value for each in node.keywords if each.arg}
        signature = inspect.signature(imported[node.func.id])
        signature.bind_partial(*node.args, **given)
        # A component's **kwargs, which it takes only to refuse them, are no parameters.
        unknown = {name for name in given if signature.parameters.get(name) is None}
        assert not unknown, f"{node.func.id} has no {unknown}"
        if "distribution" in given:
            read_distribution(ast.literal_eval(given["distribution"]))


def test_every_block_of_python_is_right(page: Page) -> None:
    for block in page.of("python"):
        try:
            check_python(block.text)
        except (AssertionError, AttributeError, DeclarationError, ImportError, SyntaxError, TypeError) as error:
            pytest.fail(f"{page.name}:{block.line}: {error!r}")


def test_the_pages_show_the_trainer_and_the_layers() -> None:
    shown = "".join(block.text for page in PAGES for block in page.of("python"))
    for name in ("Trainer", "SynchronizedBatchNormalization", "StatelessDropout"):
        assert name in shown


def _pipeline() -> str:
    """Returns the block that makes a pipeline from a declaration."""
    (text,) = (block.text for page in PAGES for block in page.of("python") if "create_pipeline(" in block.text)
    return text


def test_the_pipeline_on_the_page_is_built(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    *before, last = ast.parse(_pipeline()).body
    assert isinstance(last, ast.Expr)
    assert isinstance(last.value, ast.Call)
    assert ast.unparse(last.value.func) == "LocalDagRunner().run"
    names: dict[str, Any] = {}
    exec(compile(ast.Module(before, []), "page", "exec"), names)
    pipeline = eval(compile(ast.Expression(last.value.args[0]), "page", "eval"), names)
    assert {node.id for node in pipeline.components} > {"TfdsExampleGen", "Trainer", "Pusher"}
    assert pipeline.pipeline_info.pipeline_root == str(tmp_path / "runs" / "digits" / "artifacts")


@pytest.mark.long
def test_the_pipeline_on_the_page_runs(tmp_path) -> None:
    (tmp_path / "run_digits.py").write_text(_pipeline())
    run_python("run_digits.py", cwd=tmp_path, code=0)
    assert list((tmp_path / "runs" / "digits" / "serving").glob("*/saved_model.pb"))


@pytest.mark.parametrize(
    "text",
    [
        "trainer = Trainer(examples=…)",
        "from tfx_estimator import Trainr",
        "from tfx_estimator.components.trainers import Trainer",
        "from tfx_estimator import Trainer\nTrainer(module_files='x.py')",
        "from tfx_estimator import Trainer\nTrainer(distribution={'train': {'strategy': 'mirrord'}})",
        "import tensorflw",
    ],
)
def test_wrong_python_is_found(text: str) -> None:
    with pytest.raises((AssertionError, AttributeError, DeclarationError, ImportError, SyntaxError, TypeError)):
        check_python(text)
