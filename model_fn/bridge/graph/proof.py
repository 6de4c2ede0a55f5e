"""Proves that a kept graph returns the export's outputs, that it trains, and that saving keeps the trained weights."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.bridge.differences import MOST, difference
from tfx_estimator.model_fn.bridge.examples import batches_of
from tfx_estimator.model_fn.bridge.graph.exported import SERVE, Exported
from tfx_estimator.model_fn.bridge.session import ESTIMATOR, Answer, Batch
from tfx_estimator.model_fn.bridge.trial import compare_answers
from tfx_estimator.pipeline.base.errors import DataError, NotEqualError, UserCodeError
from tfx_estimator.pipeline.base.text import first_line

_SIZE = 256


@dataclasses.dataclass(frozen=True)
class Proof:
    """The measured differences.

    Args:
        answers: Largest difference between export and model, relative to the largest output if that exceeds 1.
        classes: Examples whose predicted class differs.
        gradients: Number of trained weights.
        still: Those of them that a step of Keras's Adam, on one batch, did not change: their gradient is missing or 0.
        kept: Largest difference between the model after that step and its saved forms, by form.
    """

    examples: int
    compared: str
    answers: float
    classes: int
    gradients: int
    still: list[str]
    kept: dict[str, float]

    @property
    def holds(self) -> bool:
        """True if all differences are small enough, and the step changes weights."""
        trains = len(self.still) < self.gradients
        return trains and not self.classes and all(each <= MOST for each in (self.answers, *self.kept.values()))

    def to_dict(self) -> dict[str, Any]:
        """Returns the content of proof.json."""
        return {**dataclasses.asdict(self), "most": MOST, "holds": self.holds}


def prove(exported: Exported, module: ModuleType, model: tf.keras.Model, files: Sequence[str], scratch: str) -> Proof:
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
    return Proof(found["examples"], exported.output, found["logits"][ESTIMATOR], found["classes"], count, still, kept)


def not_equal(proof: Proof) -> NotEqualError:
    """Returns the error for a proof that does not hold."""
    found = [f"{proof.compared}: {proof.answers:.3g}", f"predicted classes that differ: {proof.classes}"]
    found += [f"{proof.compared} of the trained {name}: {value:.3g}" for name, value in proof.kept.items()]
    found += [f"trained weights that a step did not change: {len(proof.still)} of {proof.gradients}"]
    trains = len(proof.still) < proof.gradients
    if not all(map(np.isfinite, (proof.answers, *proof.kept.values()))):
        todo = "name examples for which its outputs are finite"
    elif not trains:
        todo = "name another output by --answer"
    else:
        todo = "export a graph without random operations; or convert the network"
    return NotEqualError(
        "\n".join(["the kept graph differs from the export: largest differences", *found]),
        expected=f"at most {MOST:g}, the same classes, and weights that train; so nothing was written",
        todo=todo,
    )


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
