"""Checks that a cluster of two processes trains here: for some steps, up to the exported model.

The training runs in a subprocess: `python -m tfx_estimator.pipeline.doctor.training FOLDER PARENT`. The module's top
imports nothing that takes long.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tfx_estimator.pipeline.base.ending import scratch
from tfx_estimator.pipeline.base.ending.keeper import die_with
from tfx_estimator.pipeline.base.errors import TfxEstimatorError
from tfx_estimator.pipeline.base.files import read_tail
from tfx_estimator.pipeline.doctor.machine import FAILED, Finding, ok
from tfx_estimator.pipeline.user_source.modules import package_parent

_NAME = "training"
_MODULE = "tfx_estimator.pipeline.doctor.training"
_STEPS = 4
# Variables of an external cluster, which takes no part.
_CLUSTERS = ("TF_CONFIG", "SLURM_")
_LINES, _SHOWN = 50, 600


def check_training(seconds: float = 240.0, environment: Mapping[str, str] = os.environ) -> Finding:
    """Trains for some steps like the Trainer: two supervised processes, up to the exported model."""
    own = {name: value for name, value in environment.items() if not name.startswith(_CLUSTERS)}
    own["PYTHONPATH"] = os.pathsep.join(filter(None, (str(package_parent()), own.get("PYTHONPATH"))))
    started = time.monotonic()
    with scratch.made() as home, tempfile.TemporaryDirectory(dir=home) as folder:
        log = os.path.join(folder, "log")
        words = [sys.executable, "-m", _MODULE, folder, str(os.getpid())]
        code = None
        with open(log, "wb") as file, contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(
                words,
                env=own,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=file,
                timeout=seconds,
                check=False,
            )
            code = done.returncode
        lines = read_tail(log, _LINES)
    if code == 0:
        return ok(_NAME, f"two processes trained and exported a model in {time.monotonic() - started:.0f} s")
    what = f"two processes did not train within {seconds:g} s" if code is None else _failure(lines, code)
    todo = "fix the failures above; if all else is ok, a firewall or a security module may forbid it"
    return Finding(_NAME, FAILED, what, todo)


def _failure(log: Sequence[str], code: int) -> str:
    """Returns the end of the log: an error of this project, without a traceback, or the end of another's."""
    lines = [line.strip() for line in log if line.strip()]
    shown = " ".join(lines[-4:])[-_SHOWN:] if lines else f"it ended with {code}"
    return f"two processes cannot train: {shown}"


def run_fn(fn_args: Any) -> None:
    """Fits a number in the Trainer's cluster, as a run_fn of TFX's Trainer."""
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
    """Trains like the Trainer: supervised, in a private network if possible, up to the exported model."""
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
        "run_fn": f"{_MODULE}.run_fn",
        "train_args": json.dumps({"num_steps": _STEPS}),
        "eval_args": "{}",
        "custom_config": "null",
        **settings.to_properties(),
    }
    outputs = {name: [artifacts[name]] for name in ("model", "model_run")}
    Executor().Do({"examples": [examples]}, outputs, properties)


def main(folder: str, parent: str) -> int:
    """Trains for a parent process, and dies with it; returns the exit code."""
    die_with(int(parent))
    try:
        train(folder)
    except TfxEstimatorError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
