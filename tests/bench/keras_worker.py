"""Measures the Keras paths, and an Estimator for comparison, in slices; see `worker`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

from tfx_estimator import bring_back_estimator

if TYPE_CHECKING:
    from tests.bench.worker import Slices
    from tfx_estimator.pipeline.config import Declaration
    from tfx_estimator.pipeline.config.trainer import TrainerSection

KERAS_PATHS = ("keras", "keras_custom_loop")
PATHS = ("estimator", *KERAS_PATHS)
# Prefixes of a path: whole batches with TensorFlow's default threads, or `threads: {intra_op: 1}`.
WHOLE, ONE_THREAD = "whole batches", "one thread"
# Far more than is measured.
_STEPS = 10_000_000


@dataclass(frozen=True)
class Case:
    dataset: str
    model: str
    batch_size: int
    threads: int = 0


CASES = {
    # One thread takes the least CPU for the short step of such a small network.
    "dense": Case("mnist", "tests.bench.networks:dense", 128, threads=1),
    "mnist_cnn": Case("mnist", "mnist_cnn", 64),
    "cifar_cnn": Case("cifar10", "cifar_cnn", 64),
}


def train(
    slices: Slices, side: str, case: str, data_dir: Optional[str], prepared: dict[str, Any], slice_steps: int
) -> None:
    """Trains with Keras or an Estimator.

    Args:
        side: `guide`; one of PATHS; `constant` and the path, for one batch in memory; or, for a Keras path,
            WHOLE or ONE_THREAD and the path.
        data_dir: TFDS data_dir, for the guide.
        slice_steps: Steps in a slice; a multiple of the 100 between two reports, because executions end at reports.
    """
    if side == "guide":
        _train_guide(slices, CASES[case], data_dir, slice_steps)
    elif side.endswith("estimator"):
        _train_estimator(slices, side, CASES[case], prepared, slice_steps)
    else:
        _train_ours(slices, side, CASES[case], prepared, slice_steps)


def _train_guide(slices: Slices, case: Case, data_dir: Optional[str], slice_steps: int) -> None:
    import tensorflow as tf

    from tests.bench.peers import keras_guide

    class Callback(tf.keras.callbacks.Callback):
        """Measures between two steps, at no cost."""

        def __init__(self) -> None:
            super().__init__()
            self._supports_tf_logs = True
            self._step = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self._step += 1
            if not slices.continues(self._step, slice_steps, case.batch_size):
                self.model.stop_training = True

    network = keras_guide.make_dense if case.model.endswith("dense") else keras_guide.make_convolutions
    examples = keras_guide.make_dataset(case.dataset, data_dir, case.batch_size)
    keras_guide.fit(network(), examples, 100, Callback())


def _train_ours(slices: Slices, side: str, case: Case, prepared: dict[str, Any], slice_steps: int) -> None:
    section = _declared(case, side).trainer
    _set_threads(section)
    bring_back_estimator()
    import tensorflow as tf

    from tests.bench import ours
    from tfx_estimator.components.trainer import seeds
    from tfx_estimator.components.trainer.keras import drivers
    from tfx_estimator.components.trainer.keras.curves import Curves
    from tfx_estimator.components.trainer.keras.model import ModelMaker
    from tfx_estimator.components.trainer.keras.saving import Saver
    from tfx_estimator.components.trainer.keras.watch import Watch
    from tfx_estimator.components.trainer.observers import Reporter
    from tfx_estimator.components.trainer.protocol.events import ProgressWriter
    from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, TaskSpec
    from tfx_estimator.components.trainer.task import runtime

    class Measured(Watch):
        def done(self, steps: int, values: Mapping[str, float], paced: bool = True) -> None:
            super().done(steps, values, paced)
            if not slices.continues(self.step, slice_steps, case.batch_size):
                self.stopped = True

    folder = tempfile.mkdtemp()
    runtime.apply(section, section.spinning)
    declared = ours.keras_input(prepared, folder, section)
    seeds.apply(section)
    model = ModelMaker(section, 10, declared.inputs).make_compiled(section.steps_per_execution)
    strategy = tf.distribute.get_strategy()
    mode = tf.estimator.ModeKeys.TRAIN
    batches = strategy.distribute_datasets_from_function(lambda context: declared.reader.input_fn(mode, context))
    if side.startswith("constant"):
        batches = tf.data.Dataset.from_tensors(next(iter(batches))).repeat()
    saver = Saver(model, folder, section.keep_checkpoint_max, TaskSpec(CHIEF, 0, 1))
    progress = ProgressWriter(os.path.join(folder, "progress.jsonl"))
    watch = Measured(
        section,
        saver,
        strategy,
        os.path.join(folder, "stop"),
        at_once=section.steps_per_execution,
        observers=[Reporter(progress, section.train_steps), Curves(folder, section.report_steps)],
    )
    watch.begin(0)
    if side.endswith("keras_custom_loop"):
        drivers.loop(model, batches, watch, strategy)
    else:
        drivers.fit(model, batches, watch, strategy)


def _train_estimator(slices: Slices, side: str, case: Case, prepared: dict[str, Any], slice_steps: int) -> None:
    declared = _declared(case, side, path="estimator")
    _set_threads(declared.trainer)
    bring_back_estimator()

    from tests.bench import ours
    from tfx_estimator.components.trainer import seeds
    from tfx_estimator.components.trainer.estimator import patches
    from tfx_estimator.components.trainer.task import runtime

    # Like a training task.
    runtime.apply(declared.trainer, declared.trainer.spinning)
    patches.apply(patches.PATCHES)
    seeds.apply(declared.trainer)
    spec = ours.trainer_spec(prepared, tempfile.mkdtemp(), case.batch_size, _STEPS, declared)
    ours.train(spec, side.startswith("constant"), [slices.hook(slice_steps, case.batch_size)])


def _set_threads(section: TrainerSection) -> None:
    """Sets them like the supervisor, before TensorFlow is imported."""
    os.environ |= section.environment


def _declared(case: Case, side: str, **trainer: Any) -> Declaration:
    """Returns a side's declaration of a case, with the guide's optimizer."""
    from tests.bench import ours

    adam = {"name": "adam", "learning_rate": 0.001, "schedule": "constant"}
    threads = case.threads or int(side.startswith(ONE_THREAD))
    own = {"model": case.model, **trainer}
    if threads:
        own["threads"] = {"intra_op": threads}
    elif not side.startswith(WHOLE):
        own["parallel_parts"] = "auto"
    return ours.declaration("bench", None, case.batch_size, _STEPS, adam, case.dataset, **own)
