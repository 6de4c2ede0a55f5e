"""The conversion of an Estimator to source from its checkpoint and input_fns, independent of any run."""

from __future__ import annotations

import collections
import functools
import os
import tempfile
from collections.abc import Callable
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.model_fn.bridge import fresh, session, trial
from tfx_estimator.model_fn.bridge.canned import calls, model_fn, optimizers, reading, weights, writing
from tfx_estimator.model_fn.bridge.canned.reading import Canned
from tfx_estimator.model_fn.bridge.kept import inputs
from tfx_estimator.model_fn.bridge.kept.inputs import InputFn
from tfx_estimator.model_fn.bridge.proof import Proof, require
from tfx_estimator.model_fn.bridge.steps import STEPS
from tfx_estimator.model_fn.bridge.tensors import SLOT, STEP, WEIGHT, Placed, Reader, read, write_arrays
from tfx_estimator.model_fn.bridge.written import MAPPING, NETWORK, WEIGHTS, drafted
from tfx_estimator.pipeline.base.files import write_json
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys


def convert(
    estimator: Any,
    checkpoint: str,
    train: InputFn,
    evaluate: InputFn,
    output: str,
    steps: Optional[int] = None,
    is_keras_3: bool = False,
    also: Callable[[str, Canned], None] = lambda *_: None,
) -> Proof:
    """Writes the network's source, its weights, the Keras model, and the proof that it equals the Estimator.

    Args:
        estimator: Must not have trained in this process: an optimizer of Keras belongs to its first graph.
        steps: Batches of an evaluation; None is all.
        also: Writes more of a canned Estimator into the folder.
    """
    canned = reading.read(estimator) if reading.is_canned(estimator) else None
    reader, _ = read(checkpoint)
    described = {part: optimizers.describe(each) for part, each in canned.optimizers.items()} if canned else {}
    types, read_batches = inputs.read(estimator, train, ModeKeys.TRAIN, STEPS)
    batches = [session.Batch(*each) for each in read_batches]
    if canned:
        training = session.training(estimator, types)
        head, write, scores = canned.head, functools.partial(writing.write, canned), session.scores
        compared = session.LOGITS
    else:
        called = calls.call(estimator, types)
        training, described = called.training, {"network": optimizers.describe(called.optimizer)}
        head, write, scores = model_fn.head(called), functools.partial(model_fn.write, called), called.scores
        compared = called.logits.op.name
    described = {
        part: optimizers.with_values(each, weights.hyperparameters(reader, applied))
        for (part, each), applied in zip(described.items(), training.applied)
    }
    own = {part: optimizers.in_keras_3(each) if is_keras_3 else each for part, each in described.items()}
    written = write(batches[0].features, own, is_keras_3)
    placed = weights.place(reader, written.weights, training, described)
    with drafted(output) as draft:
        # Before a Keras model is created: one that is created in a graph breaks those that were not.
        evaluation = session.predicting(estimator, checkpoint, evaluate, written.inputs, scores)
        with evaluation as predicting, tempfile.TemporaryDirectory(prefix="tfx-estimator-") as scratch:
            after = training.train(checkpoint, lambda: batches, scratch)
            _write(draft, written, placed, reader)
            mapping = {"checkpoint": checkpoint, "tensors": [each.to_dict() for each in placed]}
            write_json(os.path.join(draft, MAPPING), mapping)
            held = [each for each in placed if each.place and each.tensor.kind in (WEIGHT, SLOT, STEP)]
            given = (
                trial.Trial(draft, head.kind, checkpoint, held, batches, after),
                predicting.answers(steps),
            )
            command = fresh.python(fresh.program(trial.__name__, "compare"))
            # A program of TensorFlow 1 has turned off what Keras needs.
            is_here = not is_keras_3 and tf.compat.v1.executing_eagerly_outside_functions()
            result = trial.compare(*given) if is_here else fresh.ask(command, *given, is_keras_3=is_keras_3)
        counts = collections.Counter(each.tensor.kind for each in placed)
        proof = Proof(**result, tensors=dict(counts), compared=compared)
        if canned:
            also(draft, canned)
        todo = "use the code that created the Estimator when it trained"
        require(proof, draft, todo if canned else f"{todo}; or keep all of it, by --to kept")
    return proof


def _write(folder: str, written: writing.Written, placed: list[Placed], reader: Reader) -> None:
    """Writes the source, its vocabularies, and the weights."""
    words = {name: "".join(f"{word}\n" for word in words) for name, words in written.files.items()}
    for name, text in {f"{NETWORK}.py": written.text, **words}.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    write_arrays(os.path.join(folder, WEIGHTS), weights.values(reader, placed))
