"""tf.estimator is restored if TensorFlow lacks it, and unchanged if TensorFlow has it."""

from __future__ import annotations

import json
import os
import sys

import pytest

from tests.root import run_python
from tests.stack import HERE

# The path of a Python with TensorFlow 2.16 or later, tf_keras and tensorflow-estimator.
TODAY = "TFX_ESTIMATOR_TODAY_PYTHON"
CLUSTER = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1", "e:1"], "evaluator": ["f:1"]}
MASTER = {"master": ["a:1"], "worker": ["b:1"], "ps": ["d:1"]}
needs_tensorflows_own = pytest.mark.skipif(
    not HERE.has_estimator, reason=f"TensorFlow {HERE.tensorflow} has no tf.estimator of its own to compare with"
)
# Trains, evaluates and exports as in TensorFlow 1's tutorials; prints the steps and the accuracy.
PROGRAM = """
import json, sys, tempfile
import numpy as np
import tensorflow as tf
import tensorflow.estimator
from sys import argv
from tensorflow.compat.v1.estimator.inputs import numpy_input_fn
from tensorflow.estimator.export import ServingInputReceiver
from tensorflow.keras import layers
from tensorflow.python.estimator.estimator import Estimator

assert layers.Dense is tf.keras.layers.Dense
assert tensorflow.estimator is tf.estimator
assert issubclass(tf.estimator.Estimator, Estimator)

points = np.random.RandomState(0).rand(256, 4).astype("float32")
labels = (points.sum(1) > 2).astype("int64")


def model_fn(features, labels, mode):
    hidden = tf.keras.layers.Dense(16, activation="relu", kernel_initializer=tf.keras.initializers.GlorotUniform(1))
    logits = tf.compat.v1.layers.dense(hidden(features["x"]), 2, kernel_initializer=tf.zeros_initializer())
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"logits": logits})
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    accuracy = tf.compat.v1.metrics.accuracy(labels, tf.argmax(logits, -1))
    step = tf.compat.v1.train.get_global_step()
    train_op = tf.compat.v1.train.AdamOptimizer(0.01).minimize(loss, step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops={"accuracy": accuracy})


def input_fn():
    return tf.data.Dataset.from_tensor_slices(({"x": points}, labels)).repeat().batch(64)


def receiver():
    x = tf.compat.v1.placeholder(tf.float32, [None, 4])
    return ServingInputReceiver({"x": x}, {"x": x})


one_cpu = tf.distribute.MirroredStrategy(["/cpu:0"], cross_device_ops=tf.distribute.ReductionToOneDevice())
config = tf.estimator.RunConfig(tempfile.mkdtemp(), train_distribute=one_cpu)
estimator = tf.compat.v1.estimator.Estimator(model_fn, config=config)
specs = tf.estimator.TrainSpec(input_fn, 200), tf.estimator.EvalSpec(input_fn, steps=4)
metrics, _ = tf.estimator.train_and_evaluate(estimator, *specs)
served = tf.saved_model.load(estimator.export_saved_model(tempfile.mkdtemp(), receiver))
found = served.signatures["serving_default"](x=tf.constant(points))["logits"].numpy().argmax(-1)
print(json.dumps([__name__, argv[1:], int(metrics["global_step"]), float((found == labels).mean())]))
"""


@needs_tensorflows_own
def test_a_tensorflow_with_estimator_is_not_changed():
    import tensorflow as tf
    from tensorflow.python.distribute import estimator_training
    from tensorflow_estimator.python.estimator import run_config

    from tfx_estimator import bring_back_estimator

    before = tf.estimator.Estimator
    assert bring_back_estimator().Estimator is tf.estimator.Estimator is before
    assert run_config.distribute_coordinator_training is estimator_training
    assert estimator_training.__name__.startswith("tensorflow.")


@pytest.mark.timeout(220)
@pytest.mark.parametrize(
    ("python", "program"),
    [
        (sys.executable, ["trainer/task.py"]),
        pytest.param(sys.executable, ["-m", "trainer.task"], marks=pytest.mark.long),
        (os.environ.get(TODAY), ["trainer/task.py"]),
    ],
    ids=["file", "module", "today"],
)
def test_a_program_runs_as_with_python(tmp_path, python, program):
    if python is None:
        pytest.skip(f"{TODAY} names no Python with a TensorFlow from 2.16 on")
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "task.py").write_text(PROGRAM)
    words = ("-m", "tfx_estimator.estimator", *program, "--rate", "0.01")
    done = run_python(*words, python=python, cwd=tmp_path, code=0)
    name, arguments, steps, accuracy = json.loads(done.stdout.splitlines()[-1])
    assert (name, arguments, steps) == ("__main__", ["--rate", "0.01"], 200)
    assert accuracy > 0.9


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["none.py"], "there is no file none.py"),
        (["-m", "none.task"], "there is no module none.task"),
        ([], "required: program"),
    ],
)
def test_a_missing_program_is_named(monkeypatch, tmp_path, capsys, given, message):
    from tfx_estimator.estimator import main

    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(given)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


@needs_tensorflows_own
@pytest.mark.parametrize("strategy", [True, False], ids=["strategy", "none"])
@pytest.mark.parametrize(
    "tf_config",
    [
        {},
        *({"cluster": CLUSTER, "task": {"type": type_, "index": index}} for type_, index in (("chief", 0), ("ps", 1))),
        {"cluster": CLUSTER, "task": {"type": "evaluator", "index": 0}},
        {"cluster": MASTER, "task": {"type": "worker", "index": 0}},
    ],
    ids=lambda each: "-".join(map(str, each.get("task", {"": "alone"}).values())),
)
def test_a_run_config_equals_tensorflows(monkeypatch, tf_config, strategy):
    import tensorflow as tf
    from tensorflow_estimator.python.estimator import run_config

    from tfx_estimator.model_fn.bridge import estimator_training

    monkeypatch.setenv("TF_CONFIG", json.dumps(tf_config))
    given = {"train_distribute": tf.distribute.OneDeviceStrategy("/cpu:0")} if strategy else {}
    theirs = vars(tf.estimator.RunConfig(**given))
    monkeypatch.setattr(run_config, "distribute_coordinator_training", estimator_training)
    ours = vars(tf.estimator.RunConfig(**given))
    assert str(ours.pop("_cluster_spec")) == str(theirs.pop("_cluster_spec"))
    assert str(ours.pop("_session_config")) == str(theirs.pop("_session_config"))
    # Each has its own folder.
    assert ours.keys() == theirs.keys()
    assert {**ours, "_model_dir": ""} == {**theirs, "_model_dir": ""}


@needs_tensorflows_own
@pytest.mark.parametrize(("type_", "index"), [("chief", 0), ("worker", 1), ("ps", 1), ("evaluator", 0), ("", 0)])
def test_a_task_takes_the_role_that_tensorflow_gave_it(type_, index):
    import tensorflow as tf
    from tensorflow.python.distribute import distribute_coordinator
    from tensorflow.python.distribute import estimator_training as original

    from tfx_estimator.model_fn.bridge import estimator_training

    spec = tf.train.ClusterSpec(CLUSTER) if type_ else None
    context = distribute_coordinator._WorkerContext(None, spec, type_ or None, index if type_ else None)
    ours, theirs = tf.estimator.RunConfig(), tf.estimator.RunConfig()
    estimator_training._take_place(ours, context)
    original._init_run_config_from_worker_context(theirs, context)
    for name in ("cluster_spec", "task_type", "task_id", "master", "evaluation_master", "is_chief", "service"):
        assert str(getattr(ours, f"_{name}")) == str(getattr(theirs, f"_{name}")), name
    for name in ("num_ps_replicas", "num_worker_replicas", "global_id_in_cluster"):
        assert getattr(ours, f"_{name}") == getattr(theirs, f"_{name}"), name


@pytest.mark.timeout(220)
@pytest.mark.skipif(HERE.has_estimator, reason="TensorFlow's own is left alone")
def test_enabled_after_tensorflow_keras_is_2_under_every_name(tmp_path, monkeypatch):
    code = """
import tensorflow as tf
import tfx_estimator

tfx_estimator.bring_back_estimator()
from tensorflow.keras import layers

print(layers.Dense is tf.keras.layers.Dense, layers.Dense.__module__.partition(".")[0])
"""
    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)
    done = run_python("-c", code, cwd=tmp_path)
    assert done.stdout == "True tf_keras\n", done.stderr[-2000:]
