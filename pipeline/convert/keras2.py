"""A converted training in Keras 2: a checkpoint of our Keras paths, the model, and their comparison."""

from __future__ import annotations

import collections
import dataclasses
import gc
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_estimator.components.trainer.keras.model import ModelMaker
from tfx_estimator.components.trainer.keras.saving import Saver, restore_weights
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, TaskSpec
from tfx_estimator.model_fn.bridge.placing import Guide, Places, place
from tfx_estimator.model_fn.bridge.session import LOGITS, Batch
from tfx_estimator.model_fn.bridge.tensors import Placed, Reader, Tensor, write_arrays
from tfx_estimator.model_fn.bridge.trial import compare_answers, compare_steps
from tfx_estimator.model_fn.bridge.written import WEIGHTS
from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.model_fn.step.keras_classifier import KerasClassifier
from tfx_estimator.model_fn.step.precision import FLOAT32, stored, use
from tfx_estimator.model_fn.user_models.warm_start import finalize
from tfx_estimator.pipeline.convert.answers import Answers

CHECKPOINTS = "checkpoints"


class Model:
    """A compiled model with its variables."""

    def __init__(self, model: tf.keras.Model) -> None:
        self.model, optimizer = model, model.optimizer
        assert isinstance(optimizer, DeclaredOptimizer)
        times = collections.Counter(map(_name, model.weights))
        # Keras does not prefix the layers of a nested model, so names may repeat.
        found = {_name(each): each for each in model.weights if times[_name(each)] == 1}
        slots = {
            (name, slot): optimizer.get_slot(variable, slot)
            for name, variable in ((_name(each), each) for each in stored(model.trainable_variables))
            for slot in optimizer.slots_of(variable)
        }
        # float16's loss scale is outside of the network's scope.
        found |= {_name(each): each for each in (optimizer.loss_scale.variables if optimizer.loss_scale else ())}
        of_slots = {"/".join(pair): each for pair, each in slots.items()}
        self.variables = {**found, **of_slots, _name(optimizer.iterations): optimizer.iterations}
        self.places = Places(
            {name: each.shape.as_list() for name, each in found.items()},
            {pair: ("/".join(pair), each.shape.as_list()) for pair, each in slots.items()},
            _name(optimizer.iterations),
            [_name(each) for each in model.trainable_weights],
            [_name(each) for each in model.non_trainable_weights],
            [*self.variables],
            sorted(name for name, count in times.items() if count > 1),
        )


def check(maker: ModelMaker, tensors: Sequence[Tensor], guide: Guide) -> None:
    """Refuses tensors that do not fit the model, by all of their names; an Estimator's error would name only one."""
    place(tensors, Model(maker.make_compiled(steps_per_execution=1)).places, guide)
    gc.collect()  # Keras models are reference cycles; memory may hold only one large model.


def fill(model: Model, placed: Sequence[Placed], reader: Reader) -> None:
    """Assigns each variable its tensor's value."""
    for each in placed:
        variable = model.variables[each.place]
        variable.assign(tf.cast(reader.get_tensor(each.tensor.name), variable.dtype))


def write(
    folder: str,
    maker: ModelMaker,
    tensors: Sequence[Tensor],
    guide: Guide,
    answers: Answers,
    exported: str,
    reader: Reader,
    step: int,
) -> tuple[dict[str, Any], list[Placed]]:
    """Writes weights.npz, model.keras and the checkpoint; returns fields of a `Proof`, and the places of tensors."""
    made = maker.make_compiled(steps_per_execution=1)
    assert isinstance(made, KerasClassifier)
    model = Model(made)
    placed = place(tensors, model.places, guide)
    fill(model, placed, reader)
    write_arrays(os.path.join(folder, WEIGHTS), ((each.place, model.variables[each.place].numpy()) for each in placed))
    checkpoints = os.path.join(folder, CHECKPOINTS)
    Saver(made, checkpoints, 1, TaskSpec(CHIEF, 0, 1)).save(step)
    for each in placed:
        if each.tensor.name in answers.served:
            model.variables[each.place].assign(answers.served[each.tensor.name])
    made.network.save(os.path.join(folder, "model.keras"))
    evaluated = _evaluated(maker, made)

    def answer(batch: Batch, name: str) -> np.ndarray:
        logits = evaluated(batch.features, training=False)
        return (logits if name == LOGITS else tf.nn.softmax(logits)).numpy()

    found = compare_answers(answers.evaluation(exported), answer)
    gc.collect()
    use(maker.section.precision, trains=True)
    restore_weights(made, os.path.join(checkpoints, f"model.ckpt-{step}"))
    train_step = tf.function(made.train_step)

    def train(batch: Batch) -> Any:
        return train_step((batch.features, batch.labels))["loss"]

    return found | compare_steps(answers.trained, placed, reader, train, answers.batches, model.variables), placed


def _evaluated(maker: ModelMaker, model: KerasClassifier) -> KerasClassifier:
    """Returns the model in float32, as for evaluation and serving."""
    if maker.section.precision != FLOAT32:
        weights, model = model.network.get_weights(), dataclasses.replace(maker, trains=False).make()
        model.network.set_weights(weights)
    finalize(model)
    return model


def _name(variable: tf.Variable) -> str:
    return str(variable.name.partition(":")[0])
