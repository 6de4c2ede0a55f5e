"""Demonstrates each fault that a patch fixes: prints results as JSON, in a process `without` the patches or `with`."""

from __future__ import annotations

import json
import sys
import tempfile
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import collective_util, cross_device_utils
from tensorflow.python.training import session_manager

from tfx_estimator.components.trainer.estimator import patches
from tfx_estimator.components.trainer.patch import Patch
from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator

bring_back_estimator()
# Removed with the process.
_TEMPORARY = tempfile.TemporaryDirectory()
FOLDER = Path(_TEMPORARY.name)
PATCHES: tuple[Patch, ...] = (*patches.PATCHES, *patches.REPLICA_PATCHES)
v1 = tf.compat.v1


def count_runs() -> dict[str, Any]:
    """Counts the `session.run`s of 20 steps."""
    runs = []
    run = v1.Session.run
    v1.Session.run = lambda *args, **kwargs: runs.append(1) or run(*args, **kwargs)
    train(FOLDER / "runs", steps=20, save_every=7)
    v1.Session.run = run
    saved = {int(path.stem.split("-")[1]) for path in (FOLDER / "runs").glob("model.ckpt-*.index")}
    return {"runs": len(runs), "saved": sorted(saved)}


def wait_for_chief() -> list[float]:
    """Returns how long a worker sleeps after it finds an uninitialised chief, which then initialises."""
    server = tf.distribute.Server.create_local_server()
    slept = []
    with tf.Graph().as_default():
        v1.get_variable("weight", [], use_resource=True)
        chief, initialize = v1.Session(server.target), v1.global_variables_initializer()

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            chief.run(initialize)

        session_manager.time = types.SimpleNamespace(sleep=sleep, time=time.time)
        v1.train.WorkerSessionCreator(master=server.target).create_session().close()
        session_manager.time = time
    return slept


def train(model_dir: Path, steps: int, save_every: int) -> None:
    def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str) -> tf.estimator.EstimatorSpec:
        loss = tf.reduce_mean(v1.get_variable("weight", [], tf.float32) * features)
        train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_or_create_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    estimator = tf.estimator.Estimator(
        model_fn, config=tf.estimator.RunConfig(str(model_dir), save_checkpoints_steps=save_every)
    )
    estimator.train(lambda: tf.data.Dataset.from_tensors((tf.ones([2]), tf.ones([2]))).repeat(), steps=steps)


def hand_over_optimizer() -> int:
    """Returns the steps of a canned Estimator with a Keras optimizer."""
    config = tf.estimator.RunConfig(str(FOLDER / "optimizer"), train_distribute=mirrored())
    optimizer = tf.keras.optimizers.legacy.Adam(0.01)
    estimator = tf.estimator.LinearClassifier(COLUMNS, optimizer=optimizer, config=config)
    estimator.train(examples, steps=2)
    return int(estimator.get_variable_value("global_step"))


def measure_baseline() -> dict[str, float]:
    """Returns the accuracy of always predicting the larger class, 3 of 4 examples."""
    tf.estimator.LinearClassifier(COLUMNS, str(FOLDER / "baseline")).train(examples, steps=1)
    measured = {}
    for name, strategy in {"one device": None, "replicas": mirrored()}.items():
        config = tf.estimator.RunConfig(str(FOLDER / "baseline"), eval_distribute=strategy)
        metrics = tf.estimator.LinearClassifier(COLUMNS, config=config).evaluate(examples, steps=2)
        measured[name] = float(metrics["accuracy_baseline"])
    return measured


COLUMNS = [tf.feature_column.numeric_column("x")]


def examples() -> tf.data.Dataset:
    data = tf.data.Dataset.from_tensor_slices(({"x": [[1.0], [2.0], [3.0], [4.0]]}, [1, 0, 1, 1]))
    return data.batch(4).repeat()


def mirrored() -> tf.distribute.Strategy:
    return tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"], tf.distribute.ReductionToOneDevice())


def reduce_rows() -> list[Any]:
    """Returns summed gradients of a table of 3 rows; each step's batch has another number of rows."""
    with tf.Graph().as_default():
        keys, devices = cross_device_utils.CollectiveKeys(), ["/cpu:0", "/cpu:1"]
        group, sums, rows = keys.get_group_key(devices), [], []
        for device in devices:
            launcher = cross_device_utils.CollectiveReplicaLauncher(group, 2, keys, device, collective_util.Options())
            rows.append(v1.placeholder(tf.int64, [None]))
            values = tf.ones_like(rows[-1], tf.float32)[:, tf.newaxis]
            reduced = launcher.all_reduce_indexed_slices(
                tf.IndexedSlices(values, rows[-1], tf.constant([3, 1], tf.int64))
            )
            sums.append(tf.scatter_nd(reduced.indices[:, tf.newaxis], reduced.values, [3, 1])[:, 0])
        with v1.Session() as session:
            steps = [([0], [2]), ([0, 1], [1, 2])]
            return [session.run(sums, dict(zip(rows, step)))[0].tolist() for step in steps]


def keep_momentum() -> list[float]:
    """Returns a Keras optimizer's momentum, as saved after each of two steps under central_storage."""
    folder = FOLDER / "momentum"

    def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str) -> tf.estimator.EstimatorSpec:
        weight = v1.get_variable("weight", [], tf.float32, use_resource=True)
        loss = tf.reduce_mean(weight * features) / 2
        optimizer = tf.keras.optimizers.legacy.SGD(0.1, momentum=0.5)
        optimizer.iterations = v1.train.get_or_create_global_step()
        (update,) = optimizer.get_updates(loss, [weight])
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=update)

    strategy = v1.distribute.experimental.CentralStorageStrategy(["/cpu:0", "/cpu:1"], "/cpu:0")
    saved = []
    for steps in (1, 2):
        # The second training resumes.
        estimator = tf.estimator.Estimator(model_fn, str(folder), tf.estimator.RunConfig(train_distribute=strategy))
        estimator.train(lambda: tf.data.Dataset.from_tensors((tf.ones([2]), tf.ones([2]))).repeat(), max_steps=steps)
        (name,) = (each for each in estimator.get_variable_names() if each.endswith("weight/momentum"))
        saved.append(round(float(estimator.get_variable_value(name)), 6))
    return saved


class Assigning(v1.train.Optimizer):
    """Has an apply_gradients of its own."""

    def __init__(self) -> None:
        super().__init__(use_locking=False, name="Assigning")

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Any = None) -> tf.Operation:
        return tf.group(*(variable.assign_sub(gradient) for gradient, variable in grads_and_vars))


def assign_apart() -> list[float]:
    """Returns both replicas' copies of a weight after a step, with the gradients 1 and 3."""

    def model_fn() -> tf.Operation:
        weight = v1.get_variable("weight", initializer=0.0)
        gradient = 1.0 + 2.0 * tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)
        return Assigning().apply_gradients([(tf.gradients(gradient * weight, weight)[0], weight)])

    strategy = mirrored()
    with tf.Graph().as_default(), strategy.scope(), v1.Session() as session:
        step = strategy.group(strategy.extended.call_for_each_replica(model_fn))
        (weight,) = v1.global_variables()
        session.run(v1.global_variables_initializer())
        session.run(step)
        return [session.run(copy).item() for copy in weight.values]


def read_step() -> list[int]:
    """Returns the global step that each replica reads late, in a step that adds to it."""

    def model_fn() -> Any:
        step = v1.train.get_or_create_global_step()
        with tf.control_dependencies([tf.numpy_function(lambda: time.sleep(0.5), [], [])]):
            read = step.read_value()
        return read, step.assign_add(1)

    strategy = mirrored()
    with tf.Graph().as_default(), strategy.scope(), v1.Session() as session:
        read, update = strategy.extended.call_for_each_replica(model_fn)
        session.run(v1.global_variables_initializer())
        return [int(value) for value in session.run((read.values, strategy.group(update)))[0]]


FAULTS: tuple[Callable[[], Any], ...] = (
    count_runs,
    wait_for_chief,
    assign_apart,
    read_step,
    hand_over_optimizer,
    measure_baseline,
    keep_momentum,
    # Last, since it aborts all collectives.
    reduce_rows,
)


def main(patched: bool) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    for patch, fault in zip(PATCHES, FAULTS):
        if patched:
            patch.apply()
            # A second call changes nothing.
            patch.apply()
        try:
            found = fault()
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        print(json.dumps([patch.target, found]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1] == "with")
