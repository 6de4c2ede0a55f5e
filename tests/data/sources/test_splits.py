"""Split expressions, and how they are cut into shards."""

from __future__ import annotations

import contextlib

import pytest

from tests.refusals import refused
from tfx_estimator.data.sources import ExampleRange
from tfx_estimator.data.sources.splits import cut, reject_overlap, resolve_split
from tfx_estimator.pipeline.base.errors import DataError, DataNotFoundError

_LENGTHS = {"train": (60, 41), "test": (10,)}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("train", [("train", 0, 101)]),
        ("train[90%:]", [("train", 91, 101)]),
        ("train[-1:]", [("train", 100, 101)]),
        ("train[1shard]", [("train", 60, 101)]),
        ("train[:5] + test[8:]", [("train", 0, 5), ("test", 8, 10)]),
        ("all", [("train", 0, 101), ("test", 0, 10)]),
    ],
)
def test_an_expression_means_what_it_means_in_tfds(expression, expected):
    assert resolve_split("tiny", _LENGTHS, expression) == tuple(ExampleRange(*part) for part in expected)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("trian", "Unknown split 'trian'"),
        ("train[:101%]", "percent slice boundaries"),
        ("train[:500]", "incompatible with 101 examples"),
        ("train[:0]", "holds no examples"),
    ],
)
def test_the_error_of_a_wrong_expression_lists_the_known_splits(expression, text):
    splits = "train (101 examples), test (10 examples)"
    with refused(DataNotFoundError, "data set 'tiny'", text, expression, expected=splits) as caught:
        resolve_split("tiny", _LENGTHS, expression)
    advice = "set data.splits: {train: 'train', eval: 'test'}"
    assert caught.value.todo == ("change data.splits in the declaration" if "[:0]" in expression else advice)


@pytest.mark.parametrize("parts", [1, 2, 7, 16])
def test_pieces_hold_every_example_once_in_order_and_nearly_equally(parts):
    ranges = resolve_split("tiny", _LENGTHS, "train[3:20]+test+train[50:]")
    pieces = cut(ranges, parts)
    assert len(pieces) == parts
    flat = [(part.split, index) for piece in pieces for part in piece for index in range(part.start, part.stop)]
    assert flat == [(part.split, index) for part in ranges for index in range(part.start, part.stop)]
    sizes = [sum(map(len, piece)) for piece in pieces]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("train", "evaluation", "test", "shared", "kept"),
    [
        ("train[:90%]", "train[90%:]", None, "", ""),
        ("train[10:20]+train[40:]", "test+train[:10]+train[20:40]", None, "", ""),
        ("train[:80%]", "train[80%:90%]", "test+train[90%:]", "", ""),
        ("train[:50]", "test+train[49:]", None, "train[49:50], 1 examples", "not trained on"),
        ("all", "test", None, "test[0:10], 10 examples", "not trained on"),
        ("train[:80%]", "train[80%:]", "train[90%:]", "train[91:101], 10 examples", "not selected by"),
        ("train[:80%]", "test", "train[:1]+test[5:]", "train[0:1], 1 examples", "not trained on"),
    ],
)
def test_evaluation_on_examples_that_trained_or_chose_the_model_is_refused(train, evaluation, test, shared, kept):
    expressions = {"train": train, "eval": evaluation, **({"test": test} if test else {})}
    ranges = {name: resolve_split("tiny", _LENGTHS, expression) for name, expression in expressions.items()}
    with refused(DataError, "overlap", shared, expected=kept) if shared else contextlib.nullcontext():
        reject_overlap("tiny", expressions, ranges)
