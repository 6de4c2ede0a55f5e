"""A task's runtime settings, applied before TensorFlow's first op."""

from __future__ import annotations

import json

import pytest

from tests.root import run_python
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.config.runtime import has_gpu
from tfx_estimator.pipeline.config.trainer import TrainerSection

SETTINGS_IN_EFFECT = """
import json, sys
from tfx_estimator.components.trainer.task import runtime
from tfx_estimator.pipeline.config.trainer import TrainerSection
section = TrainerSection.parse_obj(json.loads(sys.argv[1]))
runtime.apply(section, section.spinning)
import tensorflow as tf
from tensorflow.python.eager import context
from tfx_estimator.model_fn.step.classifier import make_run_config
from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator
bring_back_estimator()
tf.constant(1) + 1
shared, session = context.context().config, make_run_config(section, sys.argv[2]).session_config
print(shared.intra_op_parallelism_threads, shared.inter_op_parallelism_threads)
print(*(config.experimental.disable_thread_spinning for config in (shared, session)))
"""


def test_threads_spin_if_declared_or_if_other_work_may_wait_for_them(monkeypatch):
    replicas = {"train": {"strategy": "mirrored"}}
    layers = {"devices": ["cpu:0", "cpu:1"], "layers": {"logits": 1}}
    assert TrainerSection().spinning is has_gpu()
    monkeypatch.setattr("tfx_estimator.pipeline.config.runtime._GPUS", "/nowhere")
    assert not TrainerSection().spinning
    assert TrainerSection(threads={"spinning": True}).spinning
    assert not TrainerSection(threads={"spinning": False}, distribution=replicas).spinning
    for others in ({"distribution": replicas}, {"model_parallel": layers}, {"model": None, "module_file": "own.py"}):
        assert TrainerSection(**others).spinning
    # Without a declaration, the user's own code trains.
    assert Settings().spinning
    assert not Settings(arguments={"threads": {"spinning": False}}).spinning
    monkeypatch.setattr("tfx_estimator.pipeline.config.runtime._GPUS", "/")
    assert TrainerSection().spinning


ALLOWED = """
import os
from tfx_estimator.components.trainer.task.runtime import allow_ops
import tensorflow as tf
tf.config.threading.set_inter_op_parallelism_threads(DECLARED)
allow_ops(3)
print(os.environ["TF_NUM_INTEROP_THREADS"], tf.config.threading.get_inter_op_parallelism_threads())
"""
MESSAGE = (
    "runtime: inter-op threads: 4, one more than there are workers, instead of "
    "TF_NUM_INTEROP_THREADS={}, with which parameter servers deadlock"
)


@pytest.mark.unit
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("exported", "declared", "lines"),
    [
        ("1", 0, [MESSAGE.format("1"), "4 0"]),
        ("16", 0, ["16 0"]),
        # Declared for fewer workers than an external cluster has.
        ("3", 3, [MESSAGE.format("3"), "4 4"]),
    ],
)
def test_parameter_servers_have_enough_threads(codes, exported, declared, lines):
    code = ALLOWED.replace("DECLARED", str(declared))
    assert codes.call(code, [], [], {"TF_NUM_INTEROP_THREADS": exported}) == 0, codes.output
    # TensorFlow 2.21 logs the absence of a GPU between these lines.
    own = [line for line in codes.output.splitlines() if "cuInit" not in line]
    assert own[-len(lines) :] == lines


@pytest.mark.cluster
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("trainer", "lines"),
    [
        (
            {"threads": {"intra_op": 1, "inter_op": 2, "spinning": False}},
            [
                "runtime: thread spinning: off",
                "runtime: intra-op threads: 1",
                "runtime: inter-op threads: 2",
                "1 2",
                "True True",
            ],
        ),
        ({"distribution": {"train": "mirrored:2"}}, ["0 0", "False False"]),
    ],
    ids=["one device", "replicas"],
)
def test_tensorflow_has_the_declared_settings(trainer, lines, tmp_path):
    done = run_python("-c", SETTINGS_IN_EFFECT, json.dumps(trainer), str(tmp_path))
    assert done.stdout.splitlines() == lines, done.stderr
