"""What `make bench-accuracy` makes of its runs."""

from __future__ import annotations

import sys

import pytest
from rich.console import Console

from tests.bench import accuracy
from tests.bench.accuracy import CLAIMS, Reached, read, show, spreads
from tests.bench.measure import Clock
from tfx_estimator.pipeline import presets

pytestmark = pytest.mark.unit


def reached(preset: str, path: str, accuracy: float) -> Reached:
    summary = {"accuracy": accuracy, "training": {"last_step": 3900.0, "train_seconds": 90.0}}
    return read(preset, path, summary, Clock(cpu=240.0, wall=150.0))


def test_claims_are_of_presets():
    assert set(CLAIMS) <= set(presets.names())


def test_paths_may_be_as_far_apart_as_is_claimed_and_no_further():
    runs = [reached("cifar10", "estimator", 0.715), reached("cifar10", "keras", 0.7), reached("mnist", "keras", 0.98)]
    assert spreads(runs) == [("cifar10", 0.015, 0.015, True)]
    runs += [reached("cifar10", "keras_custom_loop", 0.7151), reached("mnist", "estimator", 0.9845)]
    assert spreads(runs) == [("mnist", 0.0045, 0.004, False), ("cifar10", 0.0151, 0.015, False)]


def test_the_table_tells_what_does_not_hold(capsys):
    runs = [reached("cifar10_resnet", "", 0.8499), reached("mnist", "keras", 0.98), reached("mnist", "estimator", 0.99)]
    show(runs, Console(width=120))
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    assert ["cifar10_resnet", "0.8499", "≥ 0.85", "3900", "1.5", "2.5", "4.0", "FAIL"] in rows
    assert ["mnist, keras", "0.9800", "≥ 0.98", "3900", "1.5", "2.5", "4.0", "pass"] in rows
    assert ["mnist, paths apart", "1.00 points", "≤ 0.4", "", "", "", "", "FAIL"] in rows


def test_without_the_data_it_says_so_and_does_nothing(tmp_path, monkeypatch, capsys):
    output = tmp_path / "results"
    monkeypatch.setattr(sys, "argv", ["accuracy", "--data-dir", str(tmp_path / "none"), "--output", str(output)])
    assert accuracy.main() == 0
    assert "skipped: no prepared MNIST / CIFAR-10" in capsys.readouterr().out
    assert not output.exists()
