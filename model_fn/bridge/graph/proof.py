"""Proves that a kept graph returns the export's outputs, that it trains, and that saving keeps the trained weights."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.bridge.differences import MOST, difference
from tfx_estimator.model_fn.bridge.graph import batches
from tfx_estimator.model_fn.bridge.graph.exported import SERVE, Exported
from tfx_estimator.pipeline.base.errors import DataError, NotEqualError, UserCodeError
from tfx_estimator.pipeline.base.text import first_line

Batch = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Proof:
    """The measured differences.

    Args:
        examples: Number of examples predicted by both.
        compared: The compared and trained output.
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
    """Measures the differences; it runs a training step on the model.

    Args:
        module: The written network.py.
        model: Returned by it.
        files: Files of evaluation examples.
        scratch: Folder for files.

    Raises:
        DataError: The export does not take the examples.
        UserCodeError: The output has no gradient.
    """
    examples, apart, classes = 0, 0.0, 0
    first: Batch = {}
    with _served(exported, exported.folder) as served:
        for batch in batches.read(exported, files):
            first = first or batch
            try:
                old = served(batch)
            except tf.errors.OpError as error:
                raise batches.not_taken(exported, error) from error
            new = _answer(model, batch)
            apart, examples = max(apart, difference(old, new)), examples + len(old)
            classes += _differ(old, new)
    if not first:
        raise DataError("there is no evaluation example", expected="one at least", todo="name some by --examples")
    _require_gradient(model, first, exported.output)
    still = _step(model, first)
    kept = _kept(exported, module, model, first, scratch)
    return Proof(examples, exported.output, apart, classes, len(model.trainable_weights), still, kept)


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


def _answer(model: tf.keras.Model, batch: Batch) -> np.ndarray:
    return model(_tensors(batch)).numpy()


def _tensors(batch: Batch) -> dict[str, tf.Tensor]:
    return {name: tf.constant(each) for name, each in batch.items()}


def _differ(old: np.ndarray, new: np.ndarray) -> int:
    if old.ndim != 2 or old.shape[1] < 2:
        return 0
    return int((old.argmax(axis=1) != new.argmax(axis=1)).sum())


def _require_gradient(model: tf.keras.Model, batch: Batch, output: str) -> None:
    """Refuses an output that trains no weight; it need not train all, for example not an auxiliary head's."""
    try:
        with tf.GradientTape() as tape:
            loss = _loss(None, model(_tensors(batch)))
        found = tape.gradient(loss, model.trainable_weights)
        trains = any(each is not None for each in found)
        what = "" if trains else f"{output} depends on no trained weight by operations that have a gradient"
    except LookupError as error:
        what = f"{output} has no gradient: {first_line(error)}"
    if what:
        raise UserCodeError(
            what,
            expected="an output that depends on trained weights, by operations that have a gradient",
            todo="name another one by --answer; or convert the network",
        )


def _loss(_: Any, answers: tf.Tensor) -> tf.Tensor:
    """A loss that depends on all outputs, without labels."""
    return tf.reduce_mean(tf.square(answers))


def _step(model: tf.keras.Model, batch: Batch) -> list[str]:
    """Runs a training step of Keras, and returns the trained weights that it did not change."""
    before = [each.numpy() for each in model.trainable_weights]
    model.compile("adam", _loss)
    model.train_on_batch(_tensors(batch), tf.zeros(len(next(iter(batch.values())))))
    pairs = zip(model.trainable_weights, before)
    return [_name(each) for each, old in pairs if np.array_equal(each.numpy(), old)]


def _kept(
    exported: Exported, module: ModuleType, model: tf.keras.Model, batch: Batch, scratch: str
) -> dict[str, float]:
    """Saves and loads the trained model in both forms, and compares their outputs with the model's."""
    now = _answer(model, batch)
    weights, folder = os.path.join(scratch, "trained.weights.h5"), os.path.join(scratch, "trained")
    model.save_weights(weights)
    other = module.network()
    other.load_weights(weights)
    module.export(model, folder)
    with _served(exported, folder) as served:
        return {"weights": difference(now, _answer(other, batch)), "SavedModel": difference(now, served(batch))}


@contextlib.contextmanager
def _served(exported: Exported, folder: str) -> Iterator[Callable[[Batch], np.ndarray]]:
    """Serves a SavedModel by a session, as Estimators' exports are served, without Keras."""
    with tf.Graph().as_default() as graph:
        session = tf.compat.v1.Session(graph=graph)
        signatures = tf.compat.v1.saved_model.load(session, [SERVE], folder).signature_def
    with contextlib.closing(session):
        takes = signatures[exported.signature].inputs
        output = signatures[exported.signature].outputs[exported.output].name
        yield lambda batch: session.run(output, {takes[name].name: each for name, each in batch.items()})


def _name(variable: tf.Variable) -> str:
    return variable.name.partition(":")[0]
