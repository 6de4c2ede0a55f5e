"""What the Estimator of a declaration, and the model exported from it, answer and train."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.components.trainer.declared_input import DeclaredInput
from tfx_estimator.model_fn.bridge import session
from tfx_estimator.model_fn.bridge.session import ESTIMATOR, LOGITS, Answer, Batch
from tfx_estimator.model_fn.bridge.steps import STEPS, Trained, opened
from tfx_estimator.model_fn.bridge.tensors import Reader
from tfx_estimator.model_fn.bridge.training_graph import Training, look
from tfx_estimator.model_fn.user_models.keras_model import PROBABILITIES
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys


@dataclasses.dataclass(frozen=True)
class Answers:
    """The Estimator's results; `declared` reads batches again each time: all together may not fit in memory."""

    declared: DeclaredInput
    compared: str
    outputs: list[np.ndarray]
    trained: Trained
    served: dict[str, np.ndarray]
    training: Optional[Training] = None

    def evaluation(self, exported: str) -> Iterator[Answer]:
        """Yields its outputs of the evaluation examples, and those of the exported model, if there is one."""
        reader = self.declared.reader
        for (features, _), output in zip(reader.input_fn(ModeKeys.EVAL).as_numpy_iterator(), self.outputs):
            yield ESTIMATOR, self.compared, Batch(features, None), output
        if not exported:
            return
        served = tf.saved_model.load(exported).signatures["serving_default"]
        files = tf.data.TFRecordDataset(sorted(reader.eval_files))
        for serialized in files.batch(reader.eval_batch_size):
            features = reader.read(serialized)
            features.pop(reader.label)
            found = served(examples=serialized)
            if (name := next((each for each in (self.compared, PROBABILITIES, LOGITS) if each in found), "")) == "":
                return
            batch = Batch({key: each.numpy() for key, each in features.items()}, None)
            yield "exported model", name, batch, found[name].numpy()

    def batches(self) -> Iterator[Batch]:
        """Reads the batches of the next steps."""
        return next_batches(self.declared)


def next_batches(declared: DeclaredInput) -> Iterator[Batch]:
    """Reads the batches of the next steps."""
    batches = declared.reader.input_fn(ModeKeys.TRAIN).as_numpy_iterator()
    return (Batch(*each) for each in itertools.islice(batches, STEPS))


def run_estimator(
    estimator: tf.estimator.Estimator,
    checkpoint: str,
    reader: Reader,
    read: Callable[[], DeclaredInput],
    folder: str,
    steps: Optional[tuple[int, int]] = None,
) -> Answers:
    """Runs the Estimator's evaluation and its next training steps.

    It must run before a Keras model is created: one that is created in a graph breaks those that were not.

    Args:
        read: Makes the input, which begins at the checkpoint's step; one of a graph belongs to it.
        steps: For a whole model_fn, whose graph is read: the checkpoint's step, and the last of the training.
    """
    declared = read()
    with session.predicting(estimator, checkpoint, read().reader.input_fn, (), _scores) as predicting:
        with predicting.graph.as_default():
            variables = {each.op.name: each for each in tf.compat.v1.global_variables()}
        served = {
            name: value
            for name in reader.get_variable_to_shape_map().keys() & variables
            if not np.array_equal(value := predicting.session.run(variables[name]), reader.get_tensor(name))
        }
        outputs = [output for *_, output in predicting.answers(None)]
    made, training = session.training(estimator, declared.reader.input_fn(ModeKeys.TRAIN).element_spec), None
    if steps is not None:
        feed = made.feed(next(next_batches(declared)))
        # A session of its own: reading runs operations, which may update moving averages.
        with made.graph.as_default(), opened(made.spec, checkpoint) as reading:
            training = look(reading, made.spec.train_op, made.applied, *steps, feed)
    trained = made.train(checkpoint, lambda: next_batches(declared), folder)
    return Answers(declared, predicting.output, outputs, trained, served, training)


def _scores(spec: tf.estimator.EstimatorSpec) -> tuple[str, tf.Tensor]:
    """Returns the output of a model_fn to compare, by its name."""
    served = (spec.export_outputs or {}).get("serving_default")
    for given in (spec.predictions, getattr(served, "outputs", None)):
        for key in (LOGITS, PROBABILITIES):
            if isinstance(given, Mapping) and key in given:
                return key, given[key]
    raise UserCodeError(
        "the predictions of the model_fn contain neither logits nor probabilities",
        expected=f"an entry {LOGITS} or {PROBABILITIES}, [batch, classes], in predictions or in serving_default",
        todo="add it; it does not change the training",
    )
