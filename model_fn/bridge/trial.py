"""Compares a model with the Estimator that it was converted from: its outputs, and the same next steps."""

from __future__ import annotations

import dataclasses
import itertools
import operator
import os
import pickle
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.bridge.canned.head import CLASSES, REGRESSION
from tfx_estimator.model_fn.bridge.differences import MOST, MOST_OF_STEPS, difference, part
from tfx_estimator.model_fn.bridge.draws import Draws
from tfx_estimator.model_fn.bridge.session import ESTIMATOR, Answer, Batch
from tfx_estimator.model_fn.bridge.steps import Trained
from tfx_estimator.model_fn.bridge.tensors import GLOBAL_STEP, WEIGHT, Placed, Reader
from tfx_estimator.model_fn.bridge.written import load

# A tensor may differ by this multiple of what rounding alone makes of it; beyond a tenth, that proves nothing.
TIMES_ROUNDED, LOOSE = 30.0, 0.1
# How often the steps are trained again if they differ, from weights that differ in their last digit.
_AGAIN = 3
# Kind and place of a tensor, its difference, and the part by which rounding alone moves it.
Moved = tuple[str, str, float, float]


@dataclasses.dataclass(frozen=True)
class Trial:
    """The network to compare."""

    folder: str
    head: str
    checkpoint: str
    placed: list[Placed]
    batches: list[Batch]
    trained: Trained


def compare(trial: Trial, answers: Iterable[Answer]) -> dict[str, Any]:
    """Writes model.keras, and returns the fields of a `Proof`."""
    module = load(trial.folder)
    model = module.network()
    module.restore(model)
    _save(module, model, os.path.join(trial.folder, "model.keras"))

    def answer(batch: Batch, _: str) -> np.ndarray:
        return np.asarray(model(module.prepare(batch.tensors()), training=False))

    found = compare_answers(answers, answer, trial.head)
    # What depends on a value is written with operations: AutoGraph would only take its time.
    train_step = tf.function(model.train_step, autograph=False)

    def train(batch: Batch) -> Any:
        model.mean_loss.reset_state()
        return train_step(module.prepare(batch.tensors(), batch.label()))["loss"]

    steps = {f"step of {part}": each.iterations for part, each in model.by_part.items()}
    variables = {**module.places(model), **steps, GLOBAL_STEP: next(iter(steps.values()))}
    reader = Reader(trial.checkpoint)
    return found | compare_steps(trial.trained, trial.placed, reader, train, lambda: trial.batches, variables)


def compare_answers(
    answers: Iterable[Answer], answer: Callable[[Batch, str], Any], head: str = CLASSES
) -> dict[str, Any]:
    """Compares the outputs, and returns fields of a `Proof`."""
    worst: dict[str, float] = defaultdict(float)
    examples = classes = 0
    for whose, name, batch, old in answers:
        new = np.asarray(answer(batch, name))
        worst[whose] = max(worst[whose], difference(old, new))
        if whose == ESTIMATOR:
            classes, examples = classes + differing_classes(old, new, head), examples + len(old)
    return {"examples": examples, "logits": dict(worst), "classes": classes}


def compare_steps(
    trained: Trained,
    placed: Sequence[Placed],
    reader: Reader,
    train: Callable[[Batch], Any],
    batches: Callable[[], Iterable[Batch]],
    variables: Mapping[str, Any],
) -> dict[str, Any]:
    """Trains the same steps, and returns fields of a `Proof`.

    Args:
        batches: Reads the batches, each time anew.
        variables: Those of the model, by place; all that the steps change.
    """
    weights = {each.place for each in placed if each.tensor.kind == WEIGHT}
    # One for all attempts: the first of them traces `train`.
    draws = Draws()
    # In a file: memory holds few copies of a large model.
    with tempfile.TemporaryFile() as begun:
        for variable in variables.values():
            pickle.dump(np.asarray(variable), begun, protocol=pickle.HIGHEST_PROTOCOL)
        found = _steps(trained, placed, reader, train, batches(), variables, draws)
        for attempt in range(_AGAIN if found["wrong"] else 0):
            # A ReLU or a maximum that rounding turns moves all tensors, by up to some per cent; a wrong step does it
            # again.
            begun.seek(0)
            random = np.random.default_rng(attempt)
            for place, variable in variables.items():
                value = pickle.load(begun)
                if place in weights and np.issubdtype(value.dtype, np.floating):
                    value = value + random.choice(np.array([-1, 1], value.dtype), value.shape) * np.spacing(value)
                variable.assign(value)
            before = found["wrong"]
            found = _steps(trained, placed, reader, train, batches(), variables, draws)
            found["wrong"] = {place: each for place, each in found["wrong"].items() if place in before}
            if not found["wrong"]:
                break
    return found


def _steps(
    trained: Trained,
    placed: Sequence[Placed],
    reader: Reader,
    train: Callable[[Batch], Any],
    batches: Iterable[Batch],
    variables: Mapping[str, Any],
    draws: Draws,
) -> dict[str, Any]:
    """Trains once."""
    given, losses = enumerate(batches), list[float]()

    def moved() -> Iterator[Moved]:
        for count, tensors in itertools.groupby(trained.tensors(placed, reader), key=operator.itemgetter(0)):
            with draws.fixed():
                for draws.step, batch in itertools.islice(given, count - len(losses)):
                    losses.append(float(train(batch)))
            for _, kind, place, before, old, rounded in tensors:
                yield kind, place, part(before, old, np.asarray(variables[place])), rounded

    found = judge(moved())
    found["next_steps"]["loss"] = difference(np.array(trained.losses), np.array(losses))
    return found | {"draws": {"estimator": trained.draws, "keras": len(draws.made)}, "steps": len(losses)}


def judge(moved: Iterable[Moved]) -> dict[str, Any]:
    """Compares tensors after steps with what rounding allows, and returns fields of a `Proof`."""
    largest, wrong, compared = {"loss": 0.0}, dict[str, float](), dict[str, bool]()
    for kind, place, found, rounded in moved:
        most = MOST_OF_STEPS + TIMES_ROUNDED * rounded
        if not found <= most:
            wrong[place] = found
        if most <= LOOSE:
            largest[kind] = max(largest.get(kind, 0.0), found)
        compared[place] = compared.get(place, False) or most <= LOOSE
    rounding = [place for place, is_compared in compared.items() if not is_compared]
    return {"next_steps": largest, "wrong": wrong, "rounding": rounding}


def differing_classes(old: np.ndarray, new: np.ndarray, head: str = CLASSES) -> int:
    """Counts the examples with another predicted class, unless rounding explains it."""
    if head == REGRESSION or old.ndim != 2 or (head == CLASSES and old.shape[1] < 2):
        return 0
    near = MOST * max(1.0, float(np.abs(old).max(initial=0.0)))
    if head != CLASSES:
        return int(np.any(((old > 0) != (new > 0)) & (np.abs(old - new) > near), axis=1).sum())
    rows, classes, others = np.arange(len(old)), old.argmax(axis=1), new.argmax(axis=1)
    with np.errstate(invalid="ignore"):
        is_near = old[rows, classes] - old[rows, others] <= 2 * near
    return int(((classes != others) & ~is_near).sum())


def _save(module: ModuleType, model: Any, file: str) -> None:
    """Saves the model without its optimizers, since Keras's format holds only one."""
    bare = module.network()
    for empty, layer in zip(bare.layers, model.layers):
        empty.set_weights(layer.get_weights())
    bare.save(file)
