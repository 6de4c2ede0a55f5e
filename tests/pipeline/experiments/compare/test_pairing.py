"""Answers of runs whose examples lie in other folders, in another order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tfx_estimator.pipeline.base.errors import DeclarationError

pytestmark = pytest.mark.unit

NAMES = ["zero", "one"]
# (pixel, label); of two the image is the same.
EXAMPLES = [(3, 0), (7, 1), (3, 1), (9, 0), (9, 0)]


def answered(folder: Path, examples: Sequence[tuple[int, int]], names: Sequence[str] = NAMES) -> tuple:
    """A model, and its answers, which tell the pixel that they are of."""
    import tensorflow as tf

    from tfx_estimator.data.features import IMAGE, LABEL
    from tfx_estimator.pipeline.experiments.compare.answers import Answers, Model
    from tfx_estimator.pipeline.experiments.compare.candidates import Candidate
    from tfx_estimator.pipeline.report.artifacts import Output

    split = folder / "Split-eval"
    split.mkdir(parents=True)
    with tf.io.TFRecordWriter(str(split / "data")) as writer:
        for pixel, label in examples:
            image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[bytes([pixel])]))
            truth = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
            features = tf.train.Features(feature={IMAGE: image, LABEL: truth})
            writer.write(tf.train.Example(features=features).SerializeToString())
    properties = {
        "image_shape": "[1, 1, 1]",
        "label_names": json.dumps(list(names)),
        "split_names": '["eval"]',
        "num_examples_eval": len(examples),
    }
    outputs = {("TfdsExampleGen", "examples"): Output(str(folder), properties)}
    labels = np.array([label for _, label in examples])
    probabilities = np.array([[pixel / 10, 1 - pixel / 10] for pixel, _ in examples])
    answers = Answers(labels, probabilities, "probabilities", 0, 0)
    return Model(Candidate(folder.name, folder.name), outputs, "eval", True), answers


def paired(*had: tuple) -> list:
    from tfx_estimator.pipeline.experiments.compare.judge import _paired
    from tfx_estimator.pipeline.report.examples import open_data

    return _paired(had, open_data(had[0][0].outputs))


def test_answers_are_put_into_the_order_of_the_first(tmp_path):
    first = answered(tmp_path / "first", EXAMPLES)
    found = paired(first, answered(tmp_path / "second", [EXAMPLES[index] for index in (4, 2, 0, 3, 1)]))
    for each in found:
        assert each.labels.tolist() == [label for _, label in EXAMPLES]
        assert each.probabilities[:, 0].tolist() == [pixel / 10 for pixel, _ in EXAMPLES]


@pytest.mark.parametrize("others", [EXAMPLES[:4], [*EXAMPLES[:4], (9, 1)]])
def test_other_examples_are_refused(tmp_path, others):
    with pytest.raises(DeclarationError, match="not evaluated on the same examples"):
        paired(answered(tmp_path / "first", EXAMPLES), answered(tmp_path / "second", others))


def test_other_classes_are_refused(tmp_path):
    with pytest.raises(DeclarationError, match="not evaluated on the same examples"):
        paired(answered(tmp_path / "first", EXAMPLES), answered(tmp_path / "second", EXAMPLES, ["one", "zero"]))
