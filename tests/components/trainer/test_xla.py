"""`trainer.xla` in whole trainings: the step is compiled, and the losses are the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.equivalence.conftest import read_losses

pytestmark = [pytest.mark.long, pytest.mark.equivalence, pytest.mark.timeout(400)]

PATHS = ("estimator", "keras", "keras_custom_loop")
ONE = {}
NAMED = {"strategy": "one_device", "devices": {"cpu": 1}}
MIRRORED = {"strategy": "mirrored", "devices": {"cpu": 2}}
WORKERS = {"strategy": "multi_worker_mirrored", "workers": 2}
# Not Adam, whose division amplifies rounding.
SGD = {"name": "momentum", "learning_rate": 0.01, "warmup_steps": 5}


def _losses(run):
    """Returns the training's losses by step, and the final evaluation's."""
    found = dict(read_losses(run.uri, ["loss"]))
    assert len(found) > 3
    return {**found, "evaluation": run.get_float_custom_property("eval_average_loss")}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("strategy", [ONE, NAMED, MIRRORED, WORKERS], ids=["one", "named", "mirrored", "workers"])
def test_losses_equal_those_of_the_uncompiled_step(train, path, strategy):
    section = {"log_every_steps": 5, "optimizer": SGD, **({"distribution": {"train": strategy}} if strategy else {})}
    plain, compiled = (train(path, 30, xla=xla, **section)[1] for xla in (False, True))
    assert _losses(compiled) == pytest.approx(_losses(plain), abs=1e-5)
    for run in (plain, compiled):
        assert run.get_float_custom_property("last_step") == 30
        (log,) = Path(run.uri).glob("logs/chief-0.attempt-*.log")
        assert ("Compiled cluster using XLA" in log.read_text()) == (run is compiled)
