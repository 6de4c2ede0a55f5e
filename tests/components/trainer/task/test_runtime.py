"""What a task sets before TensorFlow's first op."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tfx_estimator.pipeline.config.runtime import Threads, has_gpu

TOLD = """
import json, sys
from tfx_estimator.components.trainer.task import runtime
from tfx_estimator.pipeline.config.trainer import TrainerSection
trainer, distributes = json.loads(sys.argv[1])
section = TrainerSection.parse_obj(trainer)
runtime.apply(section, distributes)
import tensorflow as tf
from tensorflow.python.eager import context
from tfx_estimator.model_fn.run_config import make_run_config
tf.constant(1) + 1
shared, session = context.context().config, make_run_config(section, sys.argv[2]).session_config
print(shared.intra_op_parallelism_threads, shared.inter_op_parallelism_threads)
print(*(config.experimental.disable_thread_spinning for config in (shared, session)))
"""


@pytest.mark.unit
def test_threads_spin_where_it_is_declared_or_where_workers_wait_for_each_other(monkeypatch):
    assert Threads(spinning=True).spin(distributes=False)
    assert not Threads(spinning=False).spin(distributes=True)
    assert Threads().spin(distributes=True)
    assert Threads().spin(distributes=False) is has_gpu()
    monkeypatch.setattr("tfx_estimator.pipeline.config.runtime._GPUS", "/")
    assert Threads().spin(distributes=False)


@pytest.mark.cluster
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("trainer", "distributes", "lines"),
    [
        (
            {"threads": {"intra_op": 1, "inter_op": 2, "spinning": False}},
            False,
            [
                "runtime: threads that wait: asleep at once",
                "runtime: threads inside one op: 1",
                "runtime: ops at the same time: 2",
                "1 2",
                "True True",
            ],
        ),
        ({"distribution": {"train": "mirrored:2"}}, True, ["0 0", "False False"]),
    ],
    ids=["one device", "replicas"],
)
def test_tensorflow_has_what_is_declared(trainer, distributes, lines, tmp_path):
    arguments = [json.dumps([trainer, distributes]), str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", TOLD, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == lines
