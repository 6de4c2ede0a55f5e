"""The page of errors quotes existing messages."""

from __future__ import annotations

import ast
import re

from tests.docs.pages import PAGES
from tests.root import ROOT
from tfx_estimator.pipeline.base import errors

(PAGE,) = [page for page in PAGES if page.name == "docs/troubleshooting.md"]
# In the first column; `…` stands for any text.
QUOTED = re.findall(r"^\| `([^`]+)` \|", PAGE.text, re.MULTILINE)
_GAP = "\0"


def texts() -> set[str]:
    """Returns all text of the product, without values."""
    found = set()
    for folder in ("pipeline", "components", "data", "model_fn"):
        for file in (ROOT / folder).rglob("*.py"):
            found |= {text_of(node) for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))}
    return found


def text_of(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(value) if isinstance(value, ast.Constant) else _GAP for value in node.values)
    return ""


def test_each_quoted_message_exists_in_the_product() -> None:
    known = texts()
    patterns = {
        quoted: re.compile("[^\\w]*".join(map(re.escape, quoted.replace("…", _GAP).split()))) for quoted in QUOTED
    }
    assert len(patterns) > 30
    missing = [quoted for quoted, pattern in patterns.items() if not any(pattern.search(text) for text in known)]
    assert not missing


def test_the_page_has_each_exit_code() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    codes = {kind.exit_code for kind in kinds if issubclass(kind, errors.TfxEstimatorError)}
    first = re.findall(r"^\| ([\d, ]+) \|", PAGE.text, re.MULTILINE)
    assert codes <= {int(code) for cell in first for code in cell.split(",")}
