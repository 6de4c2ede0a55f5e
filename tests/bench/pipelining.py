"""A step in stages, on a network whose layers all cost the same: how long the stages wait, and what they gain."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from typing import Any

BATCH, SHAPE, CLASSES = 128, (24, 24, 32), 10
_LAYERS, _STEPS, _PROFILED = 6, 6, 12
_BEST = 3


def measure(microbatches: int) -> dict[str, Any]:
    """Trains a batch that stays in memory, in a fresh process of one thread an op.

    Args:
        microbatches: In two stages; 0 is the whole network on one device.

    Returns:
        `rate`: examples/s of the fastest steps; `cpu`, `wall`: seconds of all steps; `bubble`, `ideal`, `together` and
        `busy` of the fastest.
    """
    os.environ["TF_NUM_INTRAOP_THREADS"] = "1"
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    from tfx_estimator.components.trainer.profiling.trace import find_bubbles
    from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
    from tfx_estimator.model_fn.parallel.division import find_division
    from tfx_estimator.model_fn.parallel.strategies import configure_devices
    from tfx_estimator.model_fn.step.keras_classifier import KerasClassifier
    from tfx_estimator.pipeline.config.parallel import PipelineParallel
    from tfx_estimator.pipeline.config.trainer import TrainerSection

    pipeline = PipelineParallel(stages=2, microbatches=microbatches) if microbatches else None
    section = TrainerSection(train_steps=100, global_batch_size=BATCH, pipeline_parallel=pipeline)
    configure_devices(cpus=max(section.logical_cpus, 1))

    def make() -> tf.keras.Model:
        layers = tf.keras.layers
        stack = [
            layers.Conv2D(SHAPE[-1], 3, padding="same", activation="relu", name=f"conv{n}") for n in range(_LAYERS)
        ]
        last = [layers.GlobalAveragePooling2D(name="pool"), layers.Dense(CLASSES, name="logits")]
        return tf.keras.Sequential([*stack, *last], name="even")

    division = find_division(section, make, {"image": tf.TensorSpec([1, *SHAPE], tf.float32)})
    with division.used() if division else contextlib.nullcontext():
        network = make()
    with division.used(network) if division else contextlib.nullcontext():
        network(tf.zeros([1, *SHAPE]))
    model = KerasClassifier(network, section, division)
    model.compile(optimizer=DeclaredOptimizer(section.optimizer, 100))
    images = tf.random.normal([BATCH, *SHAPE])
    labels = tf.random.uniform([BATCH], maxval=CLASSES, dtype=tf.int64)
    step = tf.function(lambda: model.train_step(({"image": images}, labels)))
    seconds: list[float] = []
    cpu = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(_STEPS + _PROFILED):
            if number == _STEPS and division:
                tf.profiler.experimental.start(folder)
            began = time.monotonic()
            float(step()["loss"])
            seconds.append(time.monotonic() - began)
        spent = {"cpu": time.process_time() - cpu, "wall": sum(seconds)}
        found: dict[str, Any] = {"rate": BATCH / sorted(seconds[1:])[_BEST // 2], **spent}
        if not (division and section.pipeline_parallel):
            return found
        tf.profiler.experimental.stop()
        (file,) = tf.io.gfile.glob(f"{folder}/plugins/profile/*/*.xplane.pb")
        with open(file, "rb") as stream:
            best = find_bubbles(xplane_pb2.XSpace.FromString(stream.read()))[:_BEST]
    ideal = section.pipeline_parallel.ideal_bubble
    found.update(bubble=sum(each.share for each in best) / len(best), ideal=ideal)
    return {**found, "together": best[0].together, "busy": best[0].busy, "stages": str(division)}
