"""Pairs the answers of all candidates, and compares them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.experiments.compare.answers import Answers, Model
from tfx_estimator.pipeline.experiments.compare.numbers import (
    NumberComparison,
    NumberResult,
    pair_up_numbers,
    score_numbers,
)
from tfx_estimator.pipeline.experiments.compare.page import find_disagreements, to_html
from tfx_estimator.pipeline.experiments.compare.replicates import mean_facts, pair_up_seeds, score_seeds
from tfx_estimator.pipeline.experiments.compare.results import (
    Comparison,
    Replicate,
    Result,
    facts_of,
    pair_up,
    score,
)
from tfx_estimator.pipeline.report.artifacts import Outputs, need, need_examples
from tfx_estimator.pipeline.report.examples import DataSet, open_data
from tfx_estimator.pipeline.report.metrics import metric_name
from tfx_estimator.pipeline.report.page import attempt
from tfx_estimator.pipeline.report.predictions import losses
from tfx_estimator.pipeline.report.training import read_training

# With fewer examples every interval is wide.
_FEW = 1000
# The speed of shorter trainings is mostly noise.
_LEAST_SECONDS = 2.0


def judge(
    answered: Sequence[tuple[Model, Answers]], failures: Mapping[str, str], facts: Mapping[str, Any]
) -> tuple[Comparison, str]:
    """Compares models by their answers to the same examples; returns the comparison and its page."""
    models = [model for model, _ in answered]
    split = models[0].split
    data = open_data(models[0].outputs)
    answers = _paired(answered, data)
    labels = answers[0].labels
    if data.is_regression:
        comparison: Comparison = _judge_numbers(models, answers, {**facts, "data": data.title}, failures)
        return comparison, _page(comparison, models, answers, data)
    entropies = [losses(labels, each.probabilities) for each in answers]
    results = []
    for each, found, loss in zip(models, answers, entropies):
        facts_of_training = facts_of(need(each.outputs, "Trainer", "model_run").properties)
        metrics = {metric_name(name, data.names): value for name, value in found.metrics.items()}
        scores, size = score(labels, found.probabilities, loss), (found.output, found.model_bytes, found.parameters)
        results.append(
            Result(each.name, each.candidate.source, *scores, *size, facts_of_training, each.cached, metrics)
        )
    notes = _notes(results, answers)
    indices = _indices(models)
    names = list(indices)
    predicted = [each.predicted for each in answers]
    if models[0].candidate.seed is None:
        pairs = pair_up(names, labels, predicted, entropies, data.names)
    else:
        grouped = [[predicted[index] for index in own] for own in indices.values()]
        grouped_losses = [np.stack([entropies[index] for index in own]) for own in indices.values()]
        pairs = pair_up_seeds(names, labels, grouped, grouped_losses, data.names)
        results = [
            _over_seeds(name, [(models[index].candidate.seed, results[index]) for index in own], labels, each, loss)
            for (name, own), each, loss in zip(indices.items(), grouped, grouped_losses)
        ]
        notes += [
            f"{name}: its trainings predict the same under every seed; does its code use `trainer.seed`?"
            for name, each in zip(names, grouped_losses)
            if all(np.array_equal(each[0], other) for other in each[1:])
        ]
    comparison = Comparison(results, pairs, len(labels), split, {**facts, "data": data.title}, failures, notes)
    return comparison, _page(comparison, models, answers, data)


def _indices(models: Sequence[Model]) -> dict[str, list[int]]:
    """Returns the indices of each candidate's trainings, one or one for each seed."""
    indices: dict[str, list[int]] = {}
    for index, each in enumerate(models):
        indices.setdefault(each.candidate.name, []).append(index)
    return indices


def _page(comparison: Comparison, models: Sequence[Model], answers: Sequence[Answers], data: DataSet) -> str:
    """Returns the page, with the curves and examples of each candidate's first training."""
    firsts = [own[0] for own in _indices(models).values()]
    trainings = {models[first].candidate.name: attempt(_training, models[first].outputs) for first in firsts}
    values = [{**models[first].candidate.values, "name": ""} for first in firsts]
    disagreements = attempt(find_disagreements, data, models[0].split, [answers[first] for first in firsts])
    return to_html(comparison, trainings, values, disagreements)


def _judge_numbers(
    models: Sequence[Model], answers: Sequence[Answers], facts: Mapping[str, Any], failures: Mapping[str, str]
) -> Comparison:
    """Compares regressions."""
    labels, indices = answers[0].labels, _indices(models)
    predicted = [np.stack([answers[index].predicted for index in own]) for own in indices.values()]
    results = []
    for (name, own), numbers in zip(indices.items(), predicted):
        first, found = models[own[0]], answers[own[0]]
        trainings = [facts_of(need(models[index].outputs, "Trainer", "model_run").properties) for index in own]
        roots = [float(np.sqrt(np.mean((each - labels) ** 2))) for each in numbers]
        seeds = [{"seed": models[index].candidate.seed, "rmse": root} for index, root in zip(own, roots)]
        results.append(
            NumberResult(
                name,
                first.candidate.source,
                *score_numbers(numbers - labels),
                found.output,
                found.model_bytes,
                found.parameters,
                mean_facts(trainings),
                cached=all(models[index].cached for index in own),
                replicates=seeds if first.candidate.seed is not None else (),
            )
        )
    notes = _notes(results, [answers[own[0]] for own in indices.values()])
    pairs = pair_up_numbers(list(indices), labels, predicted)
    return NumberComparison(results, pairs, len(labels), models[0].split, facts, failures, notes)


def _over_seeds(
    name: str,
    by_seed: Sequence[tuple[Any, Result]],
    labels: np.ndarray,
    predicted: Sequence[np.ndarray],
    entropies: np.ndarray,
) -> Result:
    """Returns a candidate's result over several seeds from the results of each seed."""
    results = [result for _, result in by_seed]
    accuracy, loss = score_seeds(labels, predicted, entropies)
    return replace(
        results[0],
        name=name,
        accuracy=accuracy,
        loss=loss,
        ece=float(np.mean([each.ece for each in results])),
        training=mean_facts([each.training for each in results]),
        metrics=mean_facts([each.metrics for each in results]),
        cached=all(each.cached for each in results),
        replicates=[
            Replicate(seed, each.accuracy.value, each.loss.value, each.training, each.metrics) for seed, each in by_seed
        ],
    )


def _paired(answered: Sequence[tuple[Model, Answers]], data: DataSet) -> list[Answers]:
    """Returns all answers in the order of the first's."""
    first, base = answered[0]
    expected = None
    answers = []
    for each, found in answered:
        if _examples(each) == _examples(first):
            answers.append(found)
            continue
        theirs = open_data(each.outputs)
        expected = expected or digests(data, first.split)
        order = match(expected, digests(theirs, each.split)) if theirs.names == data.names else None
        if order is None:
            raise DeclarationError(
                f"{first.name} and {each.name} were not evaluated on the same examples:\n"
                f"  {data.title}, {len(base.labels):,} examples of {first.split}, {len(data.names)} classes\n"
                f"  {theirs.title}, {len(found.labels):,} examples of {each.split}, {len(theirs.names)} classes",
                expected="the same examples with the same labels in both, because predictions are paired",
                todo="compare runs of the same `data`, or their declarations, which are then trained",
            )
        answers.append(found.take(order))
    return answers


def _examples(model: Model) -> tuple[str, str]:
    return need_examples(model.outputs).uri, model.split


def _training(outputs: Outputs) -> Any:
    return read_training(need(outputs, "Trainer", "model_run").uri)


def _notes(results: Sequence[Any], answers: Sequence[Answers]) -> list[str]:
    notes = [f"{result.name}: {note}" for result, each in zip(results, answers) for note in each.notes]
    steps = {result.training.get("last_step") for result in results}
    if len(steps) > 1:
        notes.append("They were not trained for the same number of steps.")
    if cached := [result.name for result in results if result.cached]:
        notes.append(
            f"Trained before: {', '.join(cached)}; examples/s, CPU and memory were measured then, possibly under "
            "another load of the machine."
        )
    seconds = {result.name: result.training.get("steady_seconds", _LEAST_SECONDS) for result in results}
    if short := [name for name, lasted in seconds.items() if lasted < _LEAST_SECONDS]:
        notes.append(
            f"Training steps took less than {_LEAST_SECONDS:g} s, too short to measure speed: {', '.join(short)}."
        )
    if resumed := [result.name for result in results if result.training.get("first_step")]:
        notes.append(f"Resumed from an earlier checkpoint: {', '.join(resumed)}; seconds are of the later steps only.")
    if len(answers[0].labels) < _FEW:
        notes.append(
            f"{len(answers[0].labels):,} examples show only large differences: see the width of the intervals."
        )
    if any(np.isinf([result.loss.high, result.loss.low]).any() for result in results):
        notes.append("A mean loss of one example has no interval.")
    return notes


def digests(data: DataSet, split: str) -> list[bytes]:
    """Returns a digest of the content and the label of each example, in the order of the files."""
    return [
        hashlib.blake2b(content + int(label).to_bytes(8, "little", signed=True), digest_size=16).digest()
        for _, contents, labels in data.batches(split, -1)
        for content, label in zip(contents, labels)
    ]


def match(first: Sequence[bytes], second: Sequence[bytes]) -> np.ndarray | None:
    """Returns the index in the second run of each example of the first, int64 [examples]; None if they differ.

    Equal examples are paired in their order.
    """
    orders = [sorted(range(len(each)), key=each.__getitem__) for each in (first, second)]
    if [first[index] for index in orders[0]] != [second[index] for index in orders[1]]:
        return None
    found = np.empty(len(first), np.int64)
    found[orders[0]] = orders[1]
    return found
