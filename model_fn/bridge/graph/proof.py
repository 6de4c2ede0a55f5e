"""Proves that a kept graph returns the export's outputs, that it trains, and that saving keeps the trained weights."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import textwrap
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.bridge.differences import MOST, difference
from tfx_estimator.model_fn.bridge.examples import batches_of
from tfx_estimator.model_fn.bridge.graph.exported import SERVE, Exported
from tfx_estimator.model_fn.bridge.proof import Proof
from tfx_estimator.model_fn.bridge.session import ESTIMATOR, Answer, Batch
from tfx_estimator.model_fn.bridge.trial import compare_answers
from tfx_estimator.pipeline.base.errors import DataError, UserCodeError
from tfx_estimator.pipeline.base.text import first_line

_SIZE = 256
LIMITS = (
    "It is the inference graph: no dropout, fixed averages in normalisations, no loss and no regularisation. The "
    "optimizer's slots are not carried over. It trains on one device, under no tf.distribute strategy."
)


@dataclasses.dataclass(frozen=True)
class Kept(Proof):
    """The proof.

    Args:
        signature: The called one.
        gradients: Number of trained weights.
        still: Those of them that a step of Keras's Adam, on one batch, did not change: their gradient is missing or 0.
        kept: Largest difference between the model after that step and its saved forms, by form.
    """

    signature: str = ""
    gradients: int = 0
    still: list[str] = dataclasses.field(default_factory=list)
    kept: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """True if all differences are small enough, and the step changes weights."""
        trains = len(self.still) < self.gradients
        return trains and super().holds and all(each <= MOST for each in self.kept.values())

    def lines(self) -> list[str]:
        """Returns what the terminal shows."""
        left = f", and leaves {', '.join(self.still)}" if self.still else ""
        kept = ", ".join(f"{name} {value:.3g}" for name, value in self.kept.items())
        return [
            *super().lines(),
            f"trains        {self.signature}:{self.compared}: a step of Keras's Adam changes "
            f"{self.gradients - len(self.still)} of {self.gradients} trained weights{left}",
            f"read again    the trained model differs: {kept}",
            textwrap.fill(LIMITS, 120, initial_indent="limits        ", subsequent_indent=" " * 14),
        ]

    def more(self) -> Sequence[str]:
        """Returns further differences for the error."""
        found = [f"{self.compared} of the trained {name}: {value:.3g}" for name, value in self.kept.items()]
        return [*found, f"trained weights that a step did not change: {len(self.still)} of {self.gradients}"]

    def todo(self) -> str:
        """Returns what to do about a proof that does not hold."""
        if not all(map(np.isfinite, (*self.logits.values(), *self.kept.values()))):
            return "name examples for which its outputs are finite"
        if len(self.still) == self.gradients:
            return "name another output by --answer"
        return "export a graph without random operations; or convert the network"


def prove(exported: Exported, module: ModuleType, model: tf.keras.Model, files: Sequence[str], scratch: str) -> Kept:
    """Measures the differences; it runs a training step on the model."""
    batches: list[Batch] = []

    def answers() -> Iterator[Answer]:
        with _served(exported, exported.folder) as served:
            for given in _read(exported, files):
                batch = Batch(given, None)
                # The first is trained on.
                batches[1:] = [batch]
                yield ESTIMATOR, exported.output, batch, served(batch)

    try:
        found = compare_answers(answers(), lambda batch, _: model(batch.tensors()))
    except tf.errors.OpError as error:
        kind = "that the export can parse" if exported.serialized else f"with {', '.join(sorted(exported.inputs))}"
        raise DataError(
            f"the export does not take the evaluation examples: {first_line(error)}",
            expected=f"TFRecord files of tf.Examples {kind}",
            todo="name them by --examples",
        ) from error
    if not batches:
        raise DataError("there is no evaluation example", expected="one at least", todo="name some by --examples")
    still = _step(model, batches[0], exported.output)
    kept, count = _kept(exported, module, model, batches[0], scratch), len(model.trainable_weights)
    found |= {"compared": exported.output, "tensors": {"variable": len(model.weights)}, "signature": exported.signature}
    return Kept(**found, gradients=count, still=still, kept=kept)


def _step(model: tf.keras.Model, batch: Batch, output: str) -> list[str]:
    """Runs a training step of Keras, and returns the trained weights that it did not change.

    It need not train all, for example not an auxiliary head's; but one that trains none is refused.
    """
    before = [each.numpy() for each in model.trainable_weights]
    # A loss that depends on all outputs, without labels.
    model.compile("adam", lambda _, outputs: tf.reduce_mean(tf.square(outputs)))
    try:
        model.train_on_batch(batch.tensors(), tf.zeros(len(next(iter(batch.features.values())))))
    except (LookupError, ValueError) as error:
        raise UserCodeError(
            f"{output} depends on no trained weight by operations that have a gradient: {first_line(error)}",
            expected="an output that depends on trained weights, by operations that have a gradient",
            todo="name another one by --answer; or convert the network",
        ) from error
    pairs = zip(model.trainable_weights, before)
    return [each.name.partition(":")[0] for each, old in pairs if np.array_equal(each.numpy(), old)]


def _kept(
    exported: Exported, module: ModuleType, model: tf.keras.Model, batch: Batch, scratch: str
) -> dict[str, float]:
    """Saves and loads the trained model in both forms, and compares their outputs with the model's."""
    now = model(batch.tensors()).numpy()
    weights, folder = os.path.join(scratch, "trained.weights.h5"), os.path.join(scratch, "trained")
    model.save_weights(weights)
    other = module.network()
    other.load_weights(weights)
    module.export(model, folder)
    with _served(exported, folder) as served:
        found = {"weights": other(batch.tensors()).numpy(), "SavedModel": served(batch)}
    return {form: difference(now, each) for form, each in found.items()}


@contextlib.contextmanager
def _served(exported: Exported, folder: str) -> Iterator[Callable[[Batch], np.ndarray]]:
    """Serves a SavedModel by a session, as Estimators' exports are served, without Keras."""
    with tf.Graph().as_default() as graph:
        session = tf.compat.v1.Session(graph=graph)
        signatures = tf.compat.v1.saved_model.load(session, [SERVE], folder).signature_def
    with contextlib.closing(session):
        takes = signatures[exported.signature].inputs
        output = signatures[exported.signature].outputs[exported.output].name
        yield lambda batch: session.run(output, {takes[name].name: each for name, each in batch.features.items()})


def _read(exported: Exported, files: Sequence[str]) -> Iterator[dict[str, np.ndarray]]:
    """Yields batches of examples: serialized, or parsed by the names, types and shapes of the signature's inputs."""
    fixed = next((shape[0] for _, shape in exported.inputs.values() if shape and shape[0]), None)
    spec = {} if exported.serialized else {name: _feature(*each) for name, each in exported.inputs.items()}
    for batch in batches_of(files, fixed or _SIZE, bool(fixed)):
        found = tf.io.parse_example(batch, spec) if spec else {next(iter(exported.inputs)): batch}
        yield {name: tf.cast(each, exported.inputs[name][0]).numpy() for name, each in found.items()}


def _feature(dtype: tf.DType, shape: Optional[Sequence[Optional[int]]]) -> Any:
    """Returns the parsing feature of an input: string, int64 or float32; of variable length, padded."""
    stored = dtype if dtype == tf.string else tf.float32 if dtype.is_floating else tf.int64
    of_one = [*(shape or ())[1:]]
    if of_one and of_one[0] is None:
        return tf.io.FixedLenSequenceFeature(of_one[1:], stored, allow_missing=True)
    return tf.io.FixedLenFeature(of_one, stored)
