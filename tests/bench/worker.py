"""The measurements: `python -m tests.bench.worker TASK OPTIONS`, always a fresh process.

It prints one JSON object per line to stdout. Measurements in slices print one when they are warm, then wait for a line
on stdin before each slice.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional, TextIO

from tests.bench import embeddings, keras_worker
from tests.bench.measure import Clock
from tfx_estimator import bring_back_estimator
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys


class Slices:
    """Measures slices of work, each on request."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._cpu = 0.0

    def warm(self) -> bool:
        print(json.dumps({"warm": True}), file=self._output, flush=True)
        return self._wait()

    def done(self, examples: int) -> bool:
        """Prints the cost of the slice, and waits."""
        now = Clock.now()
        # Includes the CPU time of other threads while this side waited: they prefetch.
        spent = {"cpu": now.cpu - self._cpu, "wall": now.wall - self._start.wall, "examples": examples}
        print(json.dumps(spent), file=self._output, flush=True)
        self._cpu = now.cpu
        return self._wait()

    def continues(self, step: int, steps: int, batch_size: int) -> bool:
        """Called after each training step; returns whether training continues. The first slice is the warm-up."""
        if step % steps:
            return True
        return self.warm() if step == steps else self.done(steps * batch_size)

    def hook(self, steps: int, batch_size: int) -> Any:
        """The same for an Estimator."""
        import tensorflow as tf

        slices = self

        class Hook(tf.compat.v1.train.SessionRunHook):
            def begin(self) -> None:
                self.step = 0

            def after_run(self, run_context: Any, run_values: Any) -> None:
                self.step += 1
                if not slices.continues(self.step, steps, batch_size):
                    run_context.request_stop()

        return Hook()

    def _wait(self) -> bool:
        self._cpu = self._cpu or Clock.now().cpu
        line = sys.stdin.readline()
        self._start = Clock.now()
        return bool(line)


def main(argv: list[str]) -> None:
    task, options = argv
    with os.fdopen(os.dup(1), "w") as output:
        os.dup2(2, 1)  # other output goes to the log
        if task in SLICED:
            SLICED[task](Slices(output), **json.loads(options))
        else:
            print(json.dumps(TASKS[task](**json.loads(options))), file=output, flush=True)


def prepare(workdir: str, data_dir: Optional[str], dataset: str = "mnist") -> dict[str, Any]:
    """Makes the tf.Examples and the Transform graph that our side reads."""
    from tests.bench import ours

    return ours.prepare(workdir, data_dir, dataset)


def write_floats(data_dir: Optional[str], folder: str) -> dict[str, Any]:
    from tests.bench.peers import tfx_mnist

    tfx_mnist.write_floats(data_dir, Path(folder))
    return {}


def read(
    slices: Slices, side: str, data_dir: Optional[str], prepared: dict[str, Any], batch_size: int, batches: int
) -> None:
    """Reads training batches inside TensorFlow, like an Estimator, without training.

    Args:
        side: `ours` or `tutorial`.
        data_dir: TFDS data_dir, for the tutorial.
    """
    bring_back_estimator()
    mode = ModeKeys.TRAIN
    if side == "tutorial":
        from tests.bench.peers import tutorial

        dataset = tutorial.make_input_fn(data_dir)(mode)
    else:
        from tests.bench import ours

        dataset = ours.trainer_spec(prepared, tempfile.mkdtemp(), batch_size, 1000)["train_spec"].input_fn(mode=mode)
    _consume(slices, dataset, batches, batch_size)


def write_table(path: str, rows: int) -> dict[str, Any]:
    from tests.bench import ctr

    if not Path(path).exists():
        ctr.write_transformed(Path(path), rows)
    return {}


def write_csv(folder: str, rows: int) -> dict[str, Any]:
    from tests.bench import ctr

    if not Path(folder).exists():
        ctr.write_csv(Path(folder), rows)
    return {}


def ingest_table(side: str, folder: str) -> dict[str, Any]:
    """Reads, describes and transforms CSV files.

    Args:
        side: `tfx`: with TFX's own components and a preprocessing_fn of TensorFlow Transform's vocabularies; or `ours`.
    """
    from tests.bench.nodes import measured_run
    from tests.bench.peers import tfx_table

    with tempfile.TemporaryDirectory(prefix="tfx-estimator-bench-") as workdir:
        nodes = measured_run(tfx_table.create_pipeline(folder, workdir, side == "ours"))
    total = {key: sum(node[key] for node in nodes.values()) for key in ("cpu", "wall")}
    return {**total, "nodes": nodes}


def read_table(slices: Slices, side: str, path: str, batch_size: int, batches: int) -> None:
    """Reads training batches of a table's transformed examples.

    Args:
        side: `tfx`; `memory` or `files`: ours, with the examples kept in memory or read again in each epoch.
    """
    from tests.bench import ctr

    if side == "tfx":
        from tests.bench.peers import tfx_table

        dataset = tfx_table.read(path, batch_size)
    else:
        from tfx_estimator.data.input_fn import ExampleReader

        resident = os.path.getsize(path) if side == "memory" else 0
        reader = ExampleReader(
            [path], [], ctr.transformed_spec(), None, batch_size, batch_size, 10_000, 1, resident, label=ctr.LABEL
        )
        dataset = reader.input_fn("train")
    _consume(slices, dataset, batches, batch_size)


def _consume(slices: Slices, dataset: Any, batches: int, batch_size: int) -> None:
    """Reads a data set in slices, within TensorFlow."""
    import tensorflow as tf

    iterator = iter(dataset)

    @tf.function
    def consume(count: tf.Tensor) -> tf.Tensor:
        values = 0.0
        for _ in tf.range(count):
            features, _ = next(iterator)
            first = next(iter(features.values())) if isinstance(features, dict) else features
            # One value, so that TensorFlow cannot prune any stage.
            values += tf.cast(tf.reshape(first, [-1])[0], tf.float32)
        return values

    consume(tf.constant(10))
    going = slices.warm()
    while going:
        consume(tf.constant(batches))
        going = slices.done(batches * batch_size)


def train(
    slices: Slices, side: str, data_dir: Optional[str], prepared: dict[str, Any], batch_size: int, steps: int
) -> None:
    """Trains with an Estimator.

    Args:
        side: `ours`, `tutorial`, or `constant`: our model_fn on one batch in memory.
        data_dir: TFDS data_dir, for the tutorial.
        steps: Of one slice, and of the warm-up.
    """
    if side != "tutorial":
        # As in the preset `mnist`, and set by the supervisor.
        os.environ["TF_NUM_INTRAOP_THREADS"] = "1"
    bring_back_estimator()

    hooks = [slices.hook(steps, batch_size)]
    model_dir = tempfile.mkdtemp()
    if side == "tutorial":
        from tests.bench.peers import tutorial

        tutorial.make_estimator(model_dir).train(tutorial.make_input_fn(data_dir), hooks=hooks)
        return
    from tests.bench import ours
    from tfx_estimator.components.trainer.estimator import patches

    patches.apply(patches.PATCHES)  # like a training task
    ours.train(ours.trainer_spec(prepared, model_dir, batch_size, 1_000_000), side == "constant", hooks)


def run_pipeline(side: str, data_dir: Optional[str], floats: str, batch_size: int, steps: int) -> dict[str, Any]:
    from tests.bench.nodes import measured_run

    with tempfile.TemporaryDirectory(prefix="tfx-estimator-bench-") as folder:
        if side == "tfx_example":
            from tests.bench.peers import tfx_mnist

            pipeline = tfx_mnist.create_pipeline(floats, folder, steps, batch_size)
            serving = Path(folder, "serving")
        else:
            from tests.bench import ours
            from tfx_estimator.pipeline.build import create_pipeline
            from tfx_estimator.pipeline.folders import PipelineFolders

            optimizer = {"name": "momentum", "learning_rate": 0.05, "momentum": 0.9, "schedule": "constant"}
            declared = ours.declaration("bench", data_dir, batch_size, steps, optimizer)
            folders = PipelineFolders(folder, declared.name)
            Path(folders.home).mkdir(parents=True)
            pipeline = create_pipeline(declared, folders)
            serving = Path(folders.serving)
        nodes = measured_run(pipeline)
        pushed = any(serving.glob("*/saved_model.pb"))
    return {
        "cpu": sum(node["cpu"] for node in nodes.values()),
        "wall": sum(node["wall"] for node in nodes.values()),
        "nodes": nodes,
        "pushed": pushed,
    }


TASKS: dict[str, Callable[..., dict[str, Any]]] = {
    "prepare": prepare,
    "write_floats": write_floats,
    "write_table": write_table,
    "write_csv": write_csv,
    "ingest_table": ingest_table,
    "run_pipeline": run_pipeline,
}
SLICED: dict[str, Callable[..., None]] = {
    "read": read,
    "read_table": read_table,
    "train": train,
    "train_embeddings": embeddings.train,
    "train_keras": keras_worker.train,
}

if __name__ == "__main__":
    main(sys.argv[1:])
