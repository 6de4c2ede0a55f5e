"""Comparisons of strategies that a failure or a signal cuts short."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Optional

import pytest

from tfx_estimator.pipeline.base import errors
from tfx_estimator.pipeline.base.ending.signals import SignalledError
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.experiments import training
from tfx_estimator.pipeline.experiments.bench import measure, session
from tfx_estimator.pipeline.experiments.bench.measure import Measurement
from tfx_estimator.pipeline.experiments.bench.strategies import Plan, Run, choose, parse_contenders

# Called at the start of a stand-in training.
Before = Callable[[Run], None]


@pytest.fixture
def compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_terminal: None) -> Callable[..., int]:
    """Compares `one_core`, `one_device` and `mirrored:2` in two rounds, without a training."""
    monkeypatch.setattr(training, "prepare_inputs", lambda *_: None)

    def run(before: Before, vary: Sequence[str] = ()) -> int:
        def trained(run: Run, *_: Any) -> Optional[Measurement]:
            before(run)
            return Measurement(str(run.contender), run.round, False, 1, 100, 6400.0, 5.0, 5.0, 500, 300, 0.0, [])

        monkeypatch.setattr(measure, "measure", trained)
        choice = choose(parse_contenders("one_device,mirrored:2", "", vary), "digits", [])
        plan = Plan(choice.contenders, steps=100, warmup=5, rounds=2, input_share=False)
        return session.bench_strategies(choice, plan, str(tmp_path / "runs"), str(tmp_path / "results"))

    return run


def at(strategy: str, number: int, what: Callable[[], Any]) -> Before:
    """Calls `what` in place of one training."""

    def before(run: Run) -> None:
        if (str(run), run.round) == (strategy, number):
            what()

    return before


def raising(error: BaseException) -> Callable[[], None]:
    def what() -> None:
        raise error

    return what


def read(folder: Path) -> dict[str, Any]:
    """Returns the results, and checks that all three files exist."""
    assert sorted(path.name for path in folder.iterdir()) == ["strategies.html", "strategies.json", "strategies.png"]
    return json.loads((folder / "strategies.json").read_text())


@pytest.mark.parametrize("kind", [errors.DeclarationError, errors.DataNotFoundError])
def test_a_strategy_that_fails_in_any_way_does_not_hide_the_others(tmp_path, compare, kind):
    with pytest.raises(kind, match="no such device"):
        compare(at("one_device", 1, raising(kind("no such device"))))
    found = read(tmp_path / "results")
    assert list(found["strategies"]) == ["one_core", "mirrored:2"]
    assert [each["round"] for each in found["measurements"]] == [1, 1, 2, 2]
    assert found["failures"] == {"one_device": "no such device"}


@pytest.mark.parametrize(
    ("where", "error"),
    [(("one_core", 2), errors.DataError("no images")), (("one_device", 1), errors.StoppedError("a signal"))],
)
def test_without_the_base_or_another_strategy_there_is_no_comparison(tmp_path, compare, where, error):
    with pytest.raises(type(error), match=str(error)):
        compare(at(*where, raising(error)))
    assert not (tmp_path / "results").exists()


def end(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


STOPPED = errors.StoppedError("the comparison was ended while one_device was trained", exit_code=130)


@pytest.mark.parametrize(
    ("what", "code"),
    [(end(signal.SIGTERM), 143), (end(signal.SIGINT), 130), (raising(STOPPED), 130)],
    ids=["SIGTERM", "SIGINT", "while training"],
)
def test_a_signal_keeps_the_measurements(tmp_path, compare, what, code):
    with pytest.raises((SignalledError, errors.StoppedError)) as error:
        compare(at("one_device", 2, what))
    assert error.value.exit_code == code
    found = read(tmp_path / "results")
    assert list(found["strategies"]) == ["one_core", "one_device", "mirrored:2"]
    assert len(found["measurements"]) == 4
    assert found["doubts"][0] == "The comparison was ended in round 2 of 2."


def test_a_signal_lists_the_strategies_not_measured(tmp_path, compare):
    with pytest.raises(errors.StoppedError):
        compare(at("mirrored:2", 1, raising(STOPPED)))
    found = read(tmp_path / "results")
    assert list(found["strategies"]) == ["one_core", "one_device"]
    assert found["doubts"][0] == "The comparison was ended in round 1 of 2; not measured: mirrored:2."
    assert found["doubts"][0] in (tmp_path / "results" / "strategies.html").read_text()


def test_varied_strategies_have_distinct_names_and_refused_ones_are_listed(compare, tmp_path):
    declared = {}

    def note(run: Run) -> None:
        declared[str(run)] = run.contender.declare(load("digits", run.contender.variation.overrides).declaration, 5)

    assert compare(note, ["optimizer.name=sgd,adam", "global_batch_size=64,65"]) == 0
    found = json.loads((tmp_path / "results" / "strategies.json").read_text())
    measured = [
        f"{name} name={optimizer}, global_batch_size={batch}"
        for optimizer in ("sgd", "adam")
        for batch in (64, 65)
        for name in ("one_core", "one_device", "mirrored:2")
        if (name, batch) != ("mirrored:2", 65)
    ]
    assert list(found["strategies"]) == measured == list(declared)
    for name, each in declared.items():
        assert f"name={each.trainer.optimizer.name}, global_batch_size={each.trainer.global_batch_size}" in name
    assert [each["round"] for each in found["measurements"]] == [1] * 10 + [2] * 10
    assert found["variations"][measured[-1]] == {"trainer.optimizer.name": "adam", "trainer.global_batch_size": "65"}
    assert list(found["refused"]) == [f"mirrored:2 name={each}, global_batch_size=65" for each in ("sgd", "adam")]
    assert "65 examples do not divide evenly among 2" in found["refused"]["mirrored:2 name=sgd, global_batch_size=65"]
    page = (tmp_path / "results" / "strategies.html").read_text()
    assert ">mirrored:2 name=adam, global_batch_size=65</th><td></td><td>refused</td>" in page
    assert f">{measured[-1]}</th>" in page
