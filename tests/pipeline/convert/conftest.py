"""Fixtures: trainings to convert, created once, and a process with Keras 3."""

from __future__ import annotations

import copy
import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.components.trainer.conftest import declaration, digits, tf_estimator  # noqa: F401
from tests.model_fn.bridge.conftest import keras3, process_of_keras3  # noqa: F401


@pytest.fixture(scope="module", autouse=True)
def frozen() -> None:
    """Excludes imported modules from further garbage collections."""
    from tfx_estimator.pipeline.convert import conversion  # noqa: F401

    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def trained(
    tmp_path_factory: pytest.TempPathFactory,
    digits: dict[str, list[Any]],  # noqa: F811
) -> Callable[[dict[str, Any]], Any]:
    """Returns the training of a declaration; the first test that needs it runs it."""
    from tests.pipeline.convert.half import Half

    made: dict[str, Half] = {}

    def get(declared: dict[str, Any]) -> Half:
        key = json.dumps(declared, sort_keys=True)
        if key not in made:
            made[key] = Half(tmp_path_factory.mktemp("estimator"), digits, declared)
        # A test may change its attributes.
        return copy.copy(made[key])

    return get


@pytest.fixture
def half(
    trained: Callable[[dict[str, Any]], Any],
    declaration: Callable[..., dict[str, Any]],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Any]:
    """A training at half of its steps; arguments are entries of `trainer`.

    Tests share its folder: they may continue training, but must not change files.
    """
    from tests.pipeline.convert.half import END, NETWORKS

    monkeypatch.syspath_prepend(str(Path(__file__).parent / "user"))
    return lambda **trainer: trained(declaration(**{"model": f"{NETWORKS}:small", "train_steps": END, **trainer}))


@pytest.fixture
def runs_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the Estimator only in the first conversion of a test: the results are the same in all of them."""
    from tfx_estimator.pipeline.convert import conversion

    run_estimator, answers = conversion.run_estimator, []

    def run_once(*args: Any) -> Any:
        if not answers:
            estimator, checkpoint, reader, read, _, steps = args
            answers.append(run_estimator(estimator, checkpoint, reader, read, str(tmp_path), steps))
        return answers[0]

    monkeypatch.setattr(conversion, "run_estimator", run_once)
