"""The one table of what each strategy is."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import pytest

from tests.root import ROOT
from tfx_estimator.pipeline.config.distribution import Strategy, TrainStrategy
from tfx_estimator.pipeline.config.strategies import TRAITS, AnyStrategy

pytestmark = pytest.mark.unit

PRODUCT = ("pipeline", "components", "model_fn", "data", "src/tfx_estimator")


def test_every_strategy_that_can_be_declared_has_its_line_in_the_table():
    assert set(TRAITS) == set(get_args(AnyStrategy))
    options = set(TrainStrategy.__fields__) | set(Strategy.__fields__)
    assert {option for traits in TRAITS.values() for option in traits.options} <= options


@pytest.mark.parametrize(
    ("strategy", "in_step", "asynchronous", "is_cluster"),
    [
        ("one_device", False, False, False),
        ("mirrored", True, False, False),
        ("central_storage", True, False, False),
        ("multi_worker_mirrored", True, False, True),
        ("parameter_server", False, True, True),
        ("tpu", True, False, False),
    ],
)
def test_a_section_says_what_its_strategy_is(strategy, in_step, asynchronous, is_cluster):
    section = TrainStrategy(strategy=strategy)
    assert (section.in_step, section.asynchronous, section.is_cluster) == (in_step, asynchronous, is_cluster)
    assert section.is_collective == (in_step and is_cluster)
    assert section.distributes == (strategy != "one_device")


def test_strategies_are_not_told_apart_by_their_names_anywhere():
    files = [file for folder in PRODUCT for file in (ROOT / folder).glob("**/*.py")]
    assert len(files) > 100
    assert [found for file in files for found in _comparisons(file)] == []


def test_a_comparison_with_a_name_would_be_found(tmp_path):
    file = tmp_path / "new.py"
    file.write_text(
        '_NAMES = ("mirrored", "tpu")\nif strategy == "tpu" or strategy in _NAMES or "mirrored" != a.b:\n    x = 1\n'
    )
    assert [found.rpartition(":")[2] for found in _comparisons(file)] == ["2", "2", "2"]


def _comparisons(file: Path) -> list[str]:
    """Comparisons with a strategy's name, or with a constant of the module that holds one."""
    text = file.read_text(encoding="utf-8")
    tree = ast.parse(text if any(f'"{name}"' in text for name in TRAITS) else "")
    assigned = [node for node in tree.body if isinstance(node, ast.Assign) and _names_strategy(node.value, set())]
    constants = {target.id for node in assigned for target in node.targets if isinstance(target, ast.Name)}
    return [
        f"{file}:{node.lineno}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for side in (node.left, *node.comparators)
        if _names_strategy(side, constants)
    ]


def _names_strategy(node: ast.expr, constants: set[str]) -> bool:
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return any(_names_strategy(item, constants) for item in node.elts)
    if isinstance(node, ast.Name):
        return node.id in constants
    return isinstance(node, ast.Constant) and node.value in TRAITS
