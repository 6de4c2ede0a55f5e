"""One of two tasks that get stop requests at many moments: `python -m tests.components.trainer.keras.stopping …`."""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time


class Saves(list):
    save = list.append


def main(index: str, addresses: str, folder: str, rounds: str) -> None:
    """Runs rounds of empty synchronous steps, and prints the step at which each round stopped.

    Args:
        index: 0 is the chief.
    """
    chief, worker = addresses.split(",")
    cluster = {"chief": [chief], "worker": [worker]}
    task = {"type": ("chief", "worker")[int(index)], "index": 0}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
    import tensorflow as tf

    from tfx_estimator.components.trainer.keras.watch import Watch
    from tfx_estimator.components.trainer.protocol.events import request_stop
    from tfx_estimator.pipeline.config.trainer import TrainerSection

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    chance = random.Random(int(index))
    section = TrainerSection(model="mnist_cnn", train_steps=10**6, save_checkpoints_steps=70, log_every_steps=30)

    def one_step() -> tf.Tensor:
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(1.0))

    @tf.function
    def execute(steps: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(steps - 1):
            strategy.run(one_step)
        return strategy.run(one_step)

    stops = []
    for number in range(int(rounds)):
        stop_file = os.path.join(folder, f"stop-{number}")
        saves = Saves()
        watch = Watch(section, saves, strategy, stop_file, at_once=20, observers=[])
        watch.begin(0)
        if index == "0":
            wait, at = chance.uniform(0, 0.3), chance.choice([0, 0, 1, 25, 200])
            threading.Timer(wait, request_stop, (stop_file, at)).start()
        while not watch.ended:
            steps = watch.next_steps()
            execute(tf.constant(steps))
            time.sleep(chance.uniform(0, 0.004))
            watch.done(steps, {"loss": 1.0})
        assert watch.stopped
        stops.append([watch.step, saves[-1]])
    print(json.dumps(stops))


if __name__ == "__main__":
    main(*sys.argv[1:])
