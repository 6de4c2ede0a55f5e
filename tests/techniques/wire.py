"""Two processes that train by the built-in step, in a private network: `run` starts them.

Each takes half of the same global batches, and prints its results.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.root import ROOT, finish
from tfx_estimator.components.trainer.cluster.private_network import PrivateNetwork, enter

WORKERS, BATCH = 2, 32
WARM, STEPS = 4, 20


def run(trainers: list[dict[str, Any]], folder: Path, **strategy: Any) -> list[list[dict[str, Any]]]:
    """Trains WARM and then STEPS steps for each section.

    Args:
        trainers: Entries of the section; `restart` resumes from the chief's checkpoint after the first WARM steps;
            `save_at` replaces WARM, and prepares for a checkpoint, restarted or not.
        folder: For checkpoints.
        **strategy: Options of the strategy that all of them share.

    Returns:
        For each section and worker: `bytes` on the network in STEPS steps, `weights` (as hexadecimal text) and `loss`
        after the last, the number of `parameters`, whether the workers' weights `differed` between two averagings, and
        the number of `messages` in a step.
    """
    with PrivateNetwork() as network:
        # No other process has a port there.
        cluster = {"worker": [f"localhost:{2001 + index}" for index in range(WORKERS)]}
        started = []
        for index in range(WORKERS):
            config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
            env = {**os.environ, "TF_CONFIG": config, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_NUM_INTRAOP_THREADS": "1"}
            arguments = json.dumps([network.fds, trainers, str(folder), strategy])
            command = [sys.executable, "-m", "tests.techniques.wire", arguments]
            pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            started.append(subprocess.Popen(command, cwd=ROOT, env=env, pass_fds=network.fds, **pipes))
        outputs = finish(*started)
    return [list(each) for each in zip(*(json.loads(out.splitlines()[-1]) for out in outputs))]


def carried() -> int:
    """Returns the bytes on the loopback interface of this process's network."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()
    (loopback,) = [line.partition(":")[2].split() for line in lines if line.strip().startswith("lo:")]
    return int(loopback[0])


def _train_all(trainers: list[dict[str, Any]], folder: str, options: dict[str, Any]) -> list[dict[str, Any]]:
    from tfx_estimator.model_fn.parallel.strategies import make_keras_strategy
    from tfx_estimator.pipeline.config.distribution import TrainStrategy

    strategy = make_keras_strategy(TrainStrategy(strategy="multi_worker_mirrored", workers=WORKERS, **options))
    return [_train(trainer, strategy, os.path.join(folder, str(number))) for number, trainer in enumerate(trainers)]


def _train(trainer: dict[str, Any], strategy: Any, folder: str) -> dict[str, Any]:
    import numpy as np
    import tensorflow as tf

    from tfx_estimator.components.trainer.keras import drivers
    from tfx_estimator.components.trainer.keras.watch import mean_over_tasks
    from tfx_estimator.model_fn.optim.averaging import Averaging
    from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
    from tfx_estimator.model_fn.step.keras_classifier import KerasClassifier
    from tfx_estimator.pipeline.config.trainer import TrainerSection

    restart, save_at = trainer.pop("restart", False), trainer.pop("save_at", None)
    base = {"model": "mnist_cnn", "train_steps": 1000, "global_batch_size": BATCH}
    section = TrainerSection.parse_obj({**base, **trainer})
    sync = section.sync_every
    index = strategy.cluster_resolver.task_id
    generator = np.random.default_rng(1)
    part = slice(index * BATCH // WORKERS, (index + 1) * BATCH // WORKERS)
    images = generator.normal(size=(8, BATCH, 8, 8, 1)).astype(np.float32)
    labels = (images.mean(axis=(2, 3, 4)) > 0).astype(np.int64)[:, part]
    images = images[:, part]
    mean = mean_over_tasks(strategy)

    def make() -> tuple[tf.keras.Model, Any]:
        with strategy.scope():
            tf.keras.utils.set_random_seed(1)
            layers = [tf.keras.layers.Flatten(), tf.keras.layers.Dense(512, "relu"), tf.keras.layers.Dense(10)]
            network = tf.keras.Sequential([tf.keras.Input((8, 8, 1), name="image"), *layers])
            model = KerasClassifier(network, section)
            compression = section.distribution.train.gradient_compression
            model.compile(optimizer=DeclaredOptimizer(section.optimizer, 1000, compression))
            model.optimizer._create_all_weights(model.trainable_variables)
            return model, Averaging(model, strategy, sync.steps, sync.outer_momentum) if sync else None

    def executor(model: tf.keras.Model, averaging: Any) -> Any:
        examples = tf.data.Dataset.from_tensor_slices(({"image": images}, labels)).repeat()
        batches = iter(examples.skip(model.optimizer.iterations.numpy()))
        return functools.partial(drivers.make_execute(model, strategy, averaging), batches)

    def first(model: tf.keras.Model) -> float:
        return float(model.trainable_variables[0].numpy().sum())

    def go(model: tf.keras.Model, execute: Any, steps: int) -> tuple[float, bool]:
        differed, loss = False, 0.0
        for _ in range(2):
            # The first ends between two averagings.
            start = tf.identity(model.optimizer.iterations)
            loss = float(execute(tf.constant(steps // 2, tf.int64), start)["loss"])
            own = first(model)
            differed |= mean(own)[0] != own
        return loss, differed

    @tf.function
    def one_step() -> None:
        strategy.run(model.train_step, args=(({"image": images[0]}, labels[0]),))

    model, averaging = make()
    execute = executor(model, averaging)
    go(model, execute, save_at or WARM)
    if save_at:
        averaging.before_checkpoint()
    if restart:
        if index == 0:
            path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(os.path.join(folder, "chief"))
        mean(0.0)
        model, averaging = make()
        path = os.path.join(folder, "chief")
        tf.train.Checkpoint(model=model, optimizer=model.optimizer).read(path).assert_consumed()
        execute = executor(model, averaging)
    step = one_step.get_concrete_function().graph.as_graph_def()
    nodes = [node.op for part in (step.node, *(each.node_def for each in step.library.function)) for node in part]
    before = carried()
    loss, differed = go(model, execute, STEPS)
    return {
        "bytes": carried() - before,
        "weights": b"".join(each.numpy().tobytes() for each in model.trainable_variables).hex(),
        "loss": loss,
        "parameters": sum(each.shape.num_elements() for each in model.trainable_variables),
        "differed": differed,
        "messages": sum(node.startswith("CollectiveReduce") for node in nodes),
    }


if __name__ == "__main__":
    _fds, *_rest = json.loads(sys.argv[1])
    enter(_fds)
    print(json.dumps(_train_all(*_rest)), flush=True)
    # The others may still send requests.
    os._exit(0)
