"""The one table of what each strategy is."""

from __future__ import annotations

import ast
from typing import get_args

import pytest

from tests.root import ROOT
from tfx_estimator.pipeline.config.distribution import Strategy, TrainStrategy
from tfx_estimator.pipeline.config.strategies import TRAITS, AnyStrategy

pytestmark = pytest.mark.unit

PRODUCT = ("pipeline", "components", "model_fn", "data")
TABLES = {"pipeline/config/strategies.py", "model_fn/parallel/strategies.py"}


def test_every_strategy_that_can_be_declared_has_its_line_in_the_table():
    assert set(TRAITS) == set(get_args(AnyStrategy))
    options = set(TrainStrategy.__fields__) | set(Strategy.__fields__)
    assert {option for traits in TRAITS.values() for option in traits.options} <= options


def test_no_other_file_of_the_product_has_a_strategys_name():
    files = [file for folder in PRODUCT for file in (ROOT / folder).glob("**/*.py")]
    assert len(files) > 100
    assert {str(file.relative_to(ROOT)) for file in files if _names_strategy(file.read_text())} == TABLES


def _names_strategy(source: str) -> bool:
    """Is a string in it a strategy's name: to compare with, or as a default; text may give one as an example."""
    return any(isinstance(node, ast.Constant) and node.value in TRAITS for node in ast.walk(ast.parse(source)))
