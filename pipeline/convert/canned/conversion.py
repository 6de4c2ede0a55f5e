"""The conversion of a canned Estimator, top to bottom. It knows of no run: an Estimator, its checkpoint, its input."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.pipeline.base.files import write_json
from tfx_estimator.pipeline.convert.canned import asking, columns, optimizers, reading, run_fn, weights, writing
from tfx_estimator.pipeline.convert.canned.asking import Batch, InputFn, Step
from tfx_estimator.pipeline.convert.canned.weights import Placed
from tfx_estimator.pipeline.convert.differences import Step as Moved
from tfx_estimator.pipeline.convert.differences import difference
from tfx_estimator.pipeline.convert.proof import Proof, not_equal
from tfx_estimator.pipeline.convert.tensors import SLOT, STEP, WEIGHT, read

NETWORK, WEIGHTS = "network", "weights.npz"


@dataclass(frozen=True)
class Trained:
    """A canned Estimator's training.

    Args:
        estimator: That has not trained in this process: an optimizer of Keras belongs to its first graph.
        checkpoint: Without its `.index`.
        train: The input_fn of training.
        evaluate: That of evaluation.
        steps: Batches of an evaluation; None is all there are.
        exporters: Of the EvalSpec.
        function: That made it, for which a run_fn is to be written.
    """

    estimator: Any
    checkpoint: str
    train: InputFn
    evaluate: InputFn
    steps: Optional[int] = None
    exporters: Any = None
    function: Optional[run_fn.TrainerFn] = None


@dataclass(frozen=True)
class Converted:
    """What a conversion came to."""

    placed: list[Placed]
    proof: Proof
    run_fn: run_fn.Written


def convert(trained: Trained, output: str) -> Converted:
    """Writes the network's source, its weights, the Keras model, and the proof that it is the Estimator.

    Args:
        output: The folder to make; it is there when all of it is, and right.

    Raises:
        UserCodeError: Something of the Estimator cannot be said, or the checkpoint is not its own.
        NotEqualError: The two differ.
    """
    estimator, checkpoint = trained.estimator, trained.checkpoint
    canned = reading.read(estimator)
    reader, _ = read(checkpoint)
    described = {part: optimizers.describe(each) for part, each in canned.optimizers.items()}
    known = weights.hyperparameters(reader, described)
    described = {part: optimizers.with_values(each, known[part]) for part, each in described.items()}
    features = asking.first_batch(estimator, trained.train).features
    written = writing.write(canned, features, described)
    placed = weights.place(reader, written.weights, described)
    answers = asking.logits(estimator, checkpoint, trained.evaluate, trained.steps, written.inputs)
    after = asking.step(estimator, checkpoint, trained.train)
    draft = tempfile.mkdtemp(prefix=".converting-", dir=os.path.dirname(os.path.abspath(output)))
    try:
        _write(draft, written, placed, reader)
        mapping = {"checkpoint": checkpoint, "tensors": [each.to_dict() for each in placed]}
        write_json(os.path.join(draft, "mapping.json"), mapping)
        module = load(draft)
        model = module.network()
        module.restore(model)
        proof = _prove(canned, module, written.inputs, model, reader, placed, answers, after)
        write_json(os.path.join(draft, "proof.json"), proof.to_dict())
        function = run_fn.Written()
        if trained.function is not None:
            given = (canned, estimator, trained.train, trained.exporters)
            function = run_fn.write(draft, os.path.abspath(output), trained.function, *given)
        if not proof.holds:
            raise not_equal(proof, "have the code that makes the Estimator be what it was when it trained")
        os.chmod(draft, 0o755)
        os.rename(draft, output)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return Converted(placed, proof, function)


def load(folder: str) -> ModuleType:
    """Imports the network.py of a folder, without giving it a name that another could have."""
    spec = importlib.util.spec_from_file_location(NETWORK, os.path.join(folder, f"{NETWORK}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _write(folder: str, written: writing.Written, placed: list[Placed], reader: tf.train.CheckpointReader) -> None:
    """Writes the source, what it reads, and the model."""
    for name, text in {f"{NETWORK}.py": written.text, **_vocabularies(written)}.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    np.savez(os.path.join(folder, WEIGHTS), **weights.values(reader, placed))
    module = load(folder)
    model = module.network()
    module.restore(model)
    # Without the optimizers, which Keras's file has no place for.
    bare = module.network()
    for empty, layer in zip(bare.layers, model.layers):
        empty.set_weights(layer.get_weights())
    bare.save(os.path.join(folder, "model.keras"))


def _vocabularies(written: writing.Written) -> dict[str, str]:
    return {name: "".join(f"{word}\n" for word in words) for name, words in written.files.items()}


def _prove(
    canned: reading.Canned,
    module: ModuleType,
    inputs: Mapping[str, columns.Input],
    model: tf.keras.Model,
    reader: tf.train.CheckpointReader,
    placed: list[Placed],
    answers: list[tuple[Batch, np.ndarray]],
    after: Step,
) -> Proof:
    """Compares the model with the Estimator; it is one step further after it."""
    worst, classes, examples = 0.0, 0, 0
    for batch, old in answers:
        _check_presence(inputs, batch)
        new = model(module.prepare(batch.tensors()), training=False).numpy()
        worst = max(worst, difference(old, new))
        classes += int((_classes(canned, old) != _classes(canned, new)).sum())
        examples += len(old)
    if canned.deep and canned.dropout:
        drawing = [layer.name for layer in model.layers if isinstance(layer, tf.keras.layers.Dropout)]
        return Proof(examples, {"estimator": worst}, classes, {}, chance=drawing)
    batch = after.batch
    _check_presence(inputs, batch)
    tf.function(model.train_step)(module.prepare(batch.tensors(), tf.constant(batch.labels)))
    found = {**module.places(model), "global_step": next(iter(model.by_part.values())).iterations}
    trained = {id(variable) for _, variables in model.trained() for variable in variables}
    moved = Moved()
    for each in placed:
        tensor, kind = each.tensor, each.tensor.kind
        if each.place and kind in (WEIGHT, SLOT, STEP):
            variable = found[each.place]
            part = "linear" if each.place.startswith("linear_") else "deep"
            group = f"{tensor.slot} of {part}" if kind == SLOT else f"trained {part}"
            group = group if kind == SLOT or id(variable) in trained else "other"
            before, old = reader.get_tensor(tensor.name) * each.factor, after.after[tensor.name] * each.factor
            moved.add(kind, group, before, old, variable.numpy())
    # The step is a number, which is equal or not.
    parts = {kind: part for kind, part in moved.parts.items() if kind != STEP}
    return Proof(examples, {"estimator": worst}, classes, dict(moved.largest), parts=parts)


def _check_presence(inputs: Mapping[str, columns.Input], batch: Batch) -> None:
    for name, each in inputs.items():
        if each.dtype != "float32":
            columns.check_presence(name, batch.features[name])


def _classes(canned: reading.Canned, logits: np.ndarray) -> np.ndarray:
    if canned.head.kind == reading.REGRESSION:
        return np.zeros(len(logits))
    return logits.argmax(axis=1) if canned.head.kind == reading.CLASSES else (logits > 0).ravel()
