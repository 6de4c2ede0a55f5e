"""A training of some steps in two processes: `python -m tfx_estimator.pipeline.doctor.smoke FOLDER PARENT`."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from tfx_estimator.pipeline.base.ending.keeper import die_with
from tfx_estimator.pipeline.base.errors import TfxEstimatorError

_STEPS = 4


def run_fn(fn_args: Any) -> None:
    """Fits a number in the cluster that the Trainer has made, in the contract of TFX's Trainer."""
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        weight = tf.Variable(0.0)

    @tf.function
    def step(x: Any) -> Any:
        def update(x: Any) -> None:
            gradient = 2.0 * x * (weight * x - 2.0 * x)
            total = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradient)
            weight.assign_sub(0.1 * total)

        strategy.run(update, args=(x,))
        return weight.read_value()

    for _ in range(_STEPS):
        found = float(step(tf.constant(1.0)))
    if strategy.num_replicas_in_sync < 2 or not 1.0 < found < 2.0:
        raise RuntimeError(f"{strategy.num_replicas_in_sync} replicas found {found}, wanted a number near 2")
    model = tf.Module()
    model.weight = tf.Variable(found)
    model.call = tf.function(lambda x: x * model.weight, input_signature=[tf.TensorSpec([None], tf.float32)])
    tf.saved_model.save(model, fn_args.serving_model_dir, signatures=model.call.get_concrete_function())


def train(folder: str) -> None:
    """Trains as the Trainer does: supervised, in a private network if there can be one, up to the exported model.

    Args:
        folder: For all that it writes.

    Raises:
        TfxEstimatorError: It does not work here.
    """
    from tfx.types import standard_artifacts

    from tfx_estimator.components.trainer.cluster.private_network import NoPrivateNetworkError, PrivateNetwork
    from tfx_estimator.components.trainer.executor import Executor
    from tfx_estimator.components.trainer.settings import Settings
    from tfx_estimator.pipeline.config.strategies import ON_WORKERS

    try:
        with PrivateNetwork():
            network = "private"
    except NoPrivateNetworkError:
        network = "host"
    train = {"strategy": ON_WORKERS, "workers": 2, "timeout_seconds": 30}
    section = {"train": train, "max_restarts": 1, "network": network}
    settings = Settings(start_timeout=120.0, stall_timeout=60.0, arguments={"distribution": section})
    examples = standard_artifacts.Examples()
    examples.split_names = json.dumps(["train", "eval"])
    artifacts = {"examples": examples, "model": standard_artifacts.Model(), "model_run": standard_artifacts.ModelRun()}
    for name, artifact in artifacts.items():
        artifact.uri = os.path.join(folder, name, "1")
    properties = {
        "run_fn": "tfx_estimator.pipeline.doctor.smoke.run_fn",
        "train_args": json.dumps({"num_steps": _STEPS}),
        "eval_args": "{}",
        "custom_config": "null",
        **settings.to_properties(),
    }
    outputs = {name: [artifacts[name]] for name in ("model", "model_run")}
    Executor().Do({"examples": [examples]}, outputs, properties)


def main(folder: str, parent: str) -> int:
    """Trains for a parent process, and ends with it.

    Args:
        folder: For all that is written.

    Returns:
        The exit code of the error; 0 if there is none.
    """
    die_with(int(parent))
    try:
        train(folder)
    except TfxEstimatorError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
