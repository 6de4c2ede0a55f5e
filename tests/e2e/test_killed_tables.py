"""The training of a table, killed ten times."""

from __future__ import annotations

import random
import threading

import psutil
import pytest

from tests.e2e.conftest import Workdir
from tests.e2e.test_days import write_day
from tests.faults.injector import TRAINING, Fault

pytestmark = [pytest.mark.e2e, pytest.mark.faults, pytest.mark.long, pytest.mark.timeout(1500)]

_KILLS, _INTERVAL = 10, 400
_STEPS = _INTERVAL * (_KILLS + 4)
_DECLARED = f"""\
name: shops
data: {{csv: "days/day-1/*.csv", label: bought}}
trainer:
  model: wide_deep
  train_steps: {_STEPS}
  global_batch_size: 64
  save_checkpoints_steps: {_INTERVAL}
  distribution: {{max_restarts: {2 * _KILLS}}}
"""


def test_a_table_s_training_that_is_killed_ten_times_is_the_undisturbed_one(tmp_path):
    chance = random.Random(7)
    (tmp_path / "shops.yaml").write_text(_DECLARED)
    write_day(tmp_path, 1)
    kills: list[Fault] = []
    for index in range(_KILLS):
        step = _INTERVAL * (index + 1) + chance.randrange(_INTERVAL // 2)
        kills.append(Fault("chief-0", TRAINING, psutil.Process.kill, step=step, after=kills[-1] if kills else None))
    killed, alone = Workdir(tmp_path / "killed"), Workdir(tmp_path / "alone")
    over = threading.Event()
    for each in kills:
        each.watch(killed.path / "shops" / "artifacts" / "Trainer", over)
    try:
        killed.run("shops.yaml", cwd=tmp_path, seconds=900)
    finally:
        over.set()
        for each in kills:
            each.join(20)
    assert all(each.happened for each in kills), [str(each) for each in kills]
    alone.run("shops.yaml", cwd=tmp_path, seconds=300)
    results, undisturbed = killed.summary("shops"), alone.summary("shops")
    assert results["training"]["restarts"] == _KILLS
    assert results["training"]["last_step"] == _STEPS
    # Two undisturbed ones differ as much: TensorFlow sums the gradients of embeddings in any order.
    assert results["metrics"] == pytest.approx(undisturbed["metrics"], abs=1e-3)
