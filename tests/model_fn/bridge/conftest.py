"""A process with Keras 3 for conversions; TensorFlow as it is without the Trainer."""

from __future__ import annotations

import functools
import importlib
import pickle
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def process_of_keras3() -> Iterator[Any]:
    from tests.model_fn.bridge.keras3 import shared

    yield shared()
    shared().close()


@pytest.fixture
def keras3(process_of_keras3: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs Keras 3 conversions in one shared process instead of new ones."""
    from tfx_estimator.model_fn.bridge import fresh

    def start(scratch: str, command: Sequence[str], given: Sequence[str], is_keras_3: bool = True) -> Any:
        assert is_keras_3
        result = Path(scratch, fresh.RESULT)
        program = command[-1].rpartition("; from ")[2]
        process_of_keras3.do("convert", f"from {program}", *(f"{scratch}/{name}" for name in given), str(result))
        return pickle.loads(result.read_bytes())

    monkeypatch.setattr(fresh, "start", start)
    return process_of_keras3


@pytest.fixture
def without_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes back the Trainer's patches of TensorFlow, which a training of another test has left in this process."""
    package = "tfx_estimator.components.trainer"
    if not {f"{package}.estimator.patches", f"{package}.seeds"} & {*sys.modules}:
        return
    from tfx_estimator.components.trainer import seeds
    from tfx_estimator.components.trainer.estimator import patches

    for each in (*patches.PATCHES, *patches.REPLICA_PATCHES, *seeds.make_patches(0)):
        module, _, path = each.target.partition(":")
        *parents, name = path.split(".")
        owner = functools.reduce(getattr, parents, importlib.import_module(module))
        found = getattr(owner, name)
        if hasattr(found, "_tfx_estimator_patch"):
            monkeypatch.setattr(owner, name, found.__wrapped__)
