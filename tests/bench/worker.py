"""The measurements themselves: `python -m tests.bench.worker TASK OPTIONS RESULT`, always a fresh process."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Optional

from tests.bench.measure import Clock


def main(argv: list[str]) -> None:
    """Runs one task and writes its result.

    Args:
        argv: Name of the task, its options as JSON, path of the result.
    """
    task, options, result = argv
    Path(result).write_text(json.dumps(TASKS[task](**json.loads(options))))


def prepare(workdir: str, data_dir: Optional[str]) -> dict[str, Any]:
    """Makes the tf.Examples and the Transform graph that our side reads.

    Args:
        workdir: Folder of the run.
        data_dir: TFDS data_dir.

    Returns:
        Their folders.
    """
    from tests.bench import ours

    return ours.prepare(workdir, data_dir)


def write_floats(data_dir: Optional[str], folder: str) -> dict[str, Any]:
    """Writes the input of TFX's example.

    Args:
        data_dir: TFDS data_dir.
        folder: Where to.

    Returns:
        Nothing.
    """
    from tests.bench.peers import tfx_mnist

    tfx_mnist.write_floats(data_dir, Path(folder))
    return {}


def read(
    side: str, data_dir: Optional[str], prepared: dict[str, Any], batch_size: int, epochs: int
) -> dict[str, float]:
    """Reads training batches, inside TensorFlow, as an Estimator does; nothing is trained.

    Args:
        side: `ours` or `tutorial`.
        data_dir: TFDS data_dir, for the tutorial.
        prepared: Our tf.Examples and graph.
        batch_size: Examples.
        epochs: How many times the training split, for ours; the tutorial's reader ends after one.

    Returns:
        CPU and wall seconds, examples, from the first element on, filling the shuffle buffer included.
    """
    import tensorflow as tf

    from tests.bench import ours
    from tests.bench.peers import tutorial

    mode = tf.estimator.ModeKeys.TRAIN
    if side == "tutorial":
        batches = tutorial.make_input_fn(data_dir)(mode)
    else:
        batches = ours.trainer_spec(prepared, tempfile.mkdtemp(), batch_size, 1000)["train_spec"].input_fn(mode=mode)
        batches = batches.take(60_000 * epochs // batch_size)

    def count(examples: tf.Tensor, batch: tuple) -> tf.Tensor:
        features, labels = batch
        images = features["image"] if isinstance(features, dict) else features
        # One pixel, so that nothing of the image's way can be left out.
        return examples + tf.cast(tf.size(labels) + 0 * tf.cast(images[0, 0, 0, 0], tf.int32), tf.int64)

    start = Clock.now()
    examples = int(batches.reduce(tf.constant(0, tf.int64), count).numpy())
    spent = Clock.now() - start
    return {"cpu": spent.cpu, "wall": spent.wall, "examples": examples}


def train(
    side: str, data_dir: Optional[str], prepared: dict[str, Any], batch_size: int, first: int, last: int
) -> dict[str, float]:
    """Trains with an Estimator, and measures between two steps.

    Args:
        side: `ours`, `tutorial`, or `constant`: our model_fn on one batch that stays in memory.
        data_dir: TFDS data_dir, for the tutorial.
        prepared: Our tf.Examples and graph.
        batch_size: Examples.
        first: Step at which measuring starts.
        last: Step at which it ends, and training too.

    Returns:
        CPU and wall seconds, examples, and the last loss.
    """
    import tensorflow as tf

    from tests.bench import ours
    from tests.bench.peers import tutorial

    class Hook(tf.estimator.SessionRunHook):
        """Reads the clocks at two steps."""

        def begin(self) -> None:
            self.step = 0
            self.marks: dict[int, Clock] = {}

        def after_run(self, run_context: Any, run_values: Any) -> None:
            self.step += 1
            if self.step in (first, last):
                self.marks[self.step] = Clock.now()

    hook = Hook()
    model_dir = tempfile.mkdtemp()
    if side == "tutorial":
        tutorial.make_estimator(model_dir).train(tutorial.make_input_fn(data_dir), hooks=[hook], max_steps=last)
    else:
        spec = ours.trainer_spec(prepared, model_dir, batch_size, last)
        input_fn = spec["train_spec"].input_fn
        if side == "constant":
            batch = _first_batch(input_fn)
            spec["estimator"].train(lambda: tf.data.Dataset.from_tensors(batch).repeat(), hooks=[hook], max_steps=last)
        else:
            spec["estimator"].train(input_fn, hooks=[hook], max_steps=last)
    spent = hook.marks[last] - hook.marks[first]
    return {"cpu": spent.cpu, "wall": spent.wall, "examples": (last - first) * batch_size}


def run_pipeline(side: str, data_dir: Optional[str], floats: str, batch_size: int, steps: int) -> dict[str, Any]:
    """Runs a whole pipeline in a new folder.

    Args:
        side: `ours` or `tfx_example`.
        data_dir: TFDS data_dir, for ours.
        floats: Folder that `write_floats` filled, for the example.
        batch_size: Examples.
        steps: Of training.

    Returns:
        CPU and wall seconds of the components, each under its name and all together, and whether a model was pushed.
    """
    from tests.bench.nodes import measured_run

    with tempfile.TemporaryDirectory(prefix="tfx-estimator-bench-") as folder:
        if side == "tfx_example":
            from tests.bench.peers import tfx_mnist

            pipeline = tfx_mnist.create_pipeline(floats, folder, steps, batch_size)
            serving = Path(folder, "serving")
        else:
            from pipeline.build import Places, create_pipeline
            from tests.bench import ours

            optimizer = {"name": "momentum", "learning_rate": 0.05, "momentum": 0.9, "schedule": "constant"}
            declared = ours.declaration("bench", data_dir, batch_size, steps, optimizer)
            places = Places(folder, declared.name)
            Path(places.home).mkdir(parents=True)
            pipeline = create_pipeline(declared, places)
            serving = Path(places.serving)
        nodes = measured_run(pipeline)
        pushed = any(serving.glob("*/saved_model.pb"))
    return {
        "cpu": sum(node["cpu"] for node in nodes.values()),
        "wall": sum(node["wall"] for node in nodes.values()),
        "nodes": nodes,
        "pushed": pushed,
    }


def _first_batch(input_fn: Any) -> Any:
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        iterator = tf.compat.v1.data.make_initializable_iterator(input_fn(mode=tf.estimator.ModeKeys.TRAIN))
        session.run([iterator.initializer, tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS)])
        return session.run(iterator.get_next())


TASKS = {
    "prepare": prepare,
    "write_floats": write_floats,
    "read": read,
    "train": train,
    "run_pipeline": run_pipeline,
}

if __name__ == "__main__":
    main(sys.argv[1:])
