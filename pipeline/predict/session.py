"""A prediction: reads the inputs, calls the model, writes its predictions and counts them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Optional, Union

import numpy as np
import tensorflow as tf

from tfx_estimator.components.served_outputs import Scores
from tfx_estimator.data.sources.files import damaged
from tfx_estimator.pipeline.base.cpus import available_cpus
from tfx_estimator.pipeline.base.errors import DamagedDataError, DataNotFoundError, UserCodeError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.predict.inputs import Found, ImageFile, RecordFile, RowFile, Unread
from tfx_estimator.pipeline.predict.model import Chosen, Model
from tfx_estimator.pipeline.predict.output import Writer
from tfx_estimator.pipeline.predict.reading import Batch, batches
from tfx_estimator.pipeline.report.page import LeftOutError
from tfx_estimator.pipeline.report.predictions import to_probabilities
from tfx_estimator.pipeline.user_data.reading import listed

# Prefixes of the lines with which TensorFlow locates an error in a graph.
_WHERE = ("Graph execution error", "Detected at node", "<stack traces", 'File "', "[[")


@dataclass(frozen=True)
class Prediction:
    """The model's prediction of a batch.

    Args:
        names: Names of its examples.
        values: float32: the served scores; after `with_probabilities` probabilities, [batch, classes], or numbers,
            [batch, 1].
        scores: Kind of the served scores.
        cells: See `Batch`.
        examples: The serialized tf.Examples of TFRecord files; None of other inputs, and of workers.
    """

    names: Sequence[str]
    values: np.ndarray
    scores: Scores
    cells: Optional[Sequence[Sequence[Any]]] = None
    examples: Optional[Sequence[bytes]] = None


@dataclass
class Progress:
    """Counts of a prediction so far."""

    examples: int = 0
    unread: int = 0
    first: str = ""  # of those that cannot be read
    started: float = field(default_factory=time.monotonic)

    def __str__(self) -> str:
        rate = self.examples / max(time.monotonic() - self.started, 1e-9)
        return f"{self.examples:,} predicted, {rate:,.0f} a second"

    def check(self) -> None:
        """Raises the error for inputs that could not be read, after all others were predicted."""
        if self.unread:
            raise DamagedDataError(
                f"{self.unread:,} could not be read, first {one_line(self.first)}",
                expected="images, tf.Examples and rows that can be read",
                todo="correct or fetch them, convert images of other formats, or leave them out; "
                + (f"{self.examples:,} others were predicted" if self.examples else "nothing was written"),
            )


def predict(
    model: Model, found: Iterable[Found], batch_size: int, is_part: bool = False
) -> Iterator[Union[Prediction, Unread]]:
    """Yields the predictions of each batch, and inputs that cannot be read, in the order of `found`.

    Args:
        is_part: The inputs are a part of all; otherwise a model that takes no example of the first batch is an error.
    """
    chosen = model.chosen
    height, width, channels = chosen.image_shape or (None, None, 3)
    resized = (height, width) if height and width else None
    most = chosen.batch_size or batch_size
    some = is_part
    for each in batches(found, channels, resized, most, available_cpus(), chosen.features):
        if isinstance(each, Unread):
            yield each
            continue
        try:
            yield _predict_batch(model, each)
            some = True
        except tf.errors.InvalidArgumentError as error:
            for one in _one_by_one(model, each, error, some):
                yield one
                some |= isinstance(one, Prediction)


def _predict_batch(model: Model, batch: Batch) -> Prediction:
    if isinstance(batch.values, np.ndarray):
        signature, values = model.chosen.images or model.chosen.examples, model.predict_images(batch.values)
    else:
        signature, values = model.chosen.examples, model.predict_examples(batch.values)
    assert signature
    is_record = batch.cells is None and not isinstance(batch.values, np.ndarray)
    return Prediction(batch.names, values, signature.scores, batch.cells, batch.values if is_record else None)  # type: ignore[arg-type]


def _one_by_one(
    model: Model, batch: Batch, error: tf.errors.OpError, may_be_none: bool
) -> Iterator[Union[Prediction, Unread]]:
    """Predicts a batch example by example, to find those that the model rejects, for example without a feature."""
    count = len(batch.names)
    taken = 0
    refused: list[Unread] = []
    for number, name in enumerate(batch.names):
        try:
            yield _predict_batch(model, batch.one(number))
            taken += 1
        except tf.errors.InvalidArgumentError as wrong:
            what = damaged(name, f"the model does not take it: {_reason(wrong)}", "an example of the model's kind").what
            refused.append(Unread(name, what))
    if not (taken or may_be_none) and count > 1:
        raise DamagedDataError(
            one_line(f"the model takes none of {count:,} examples from {batch.names[0]} on: {_reason(error)}"),
            expected="examples like those that it was trained on",
            todo="name others, or another signature by --signature; nothing was written",
        )
    yield from refused


def _reason(error: tf.errors.OpError) -> str:
    """Returns the first line of an error's message that does not locate it in the graph."""
    lines = [line.strip() for line in error.message.splitlines()]
    return next((line for line in lines if line and not line.startswith(_WHERE)), type(error).__name__)


def with_probabilities(
    predictions: Iterable[Union[Prediction, Unread]], classes: int, note: Callable[[str], None]
) -> Iterator[Union[Prediction, Unread]]:
    """Converts the scores of classes to probabilities; the first batch decides for all whether they are that already.

    Args:
        classes: Number of classes; 0 takes the number of scores.
        note: Called with a description of the conversion.
    """
    are_served: dict[Scores, bool] = {}
    for each in predictions:
        if isinstance(each, Prediction):
            scores = each.scores
            # The graph need not tell the shape of an output.
            if scores.is_number or not (classes or scores.of_two or each.values.size > len(each.names)):
                yield replace(each, values=each.values.reshape(-1, 1), scores=replace(scores, is_number=True))
                continue
            count = classes or (2 if scores.of_two else each.values.shape[-1])
            try:
                probabilities, conversion = to_probabilities(each.values, count, scores, are_served.get(scores))
            except LeftOutError as error:
                raise UserCodeError(
                    str(error),
                    expected="numbers, one for each class",
                    todo="name another output: --signature SIGNATURE:OUTPUT",
                ) from error
            if conversion and scores not in are_served:
                note(conversion)
            are_served[scores] = not conversion
            each = replace(each, values=probabilities)
        yield each


def write(
    predictions: Iterable[Union[Prediction, Unread]],
    make_writer: Callable[[Prediction], Writer],
    tell: Callable[[Progress, Optional[Unread]], None],
) -> Progress:
    """Writes the predictions.

    Args:
        make_writer: Called with the first prediction.
        tell: Called with the progress, and with each input that cannot be read.
    """
    progress = Progress()
    writer: Optional[Writer] = None
    try:
        for each in predictions:
            if isinstance(each, Unread):
                progress.first = progress.first or each.name
                progress.unread += 1
                tell(progress, each)
                continue
            writer = writer or make_writer(each)
            writer.write(writer.cells_of(each.names, each.cells, each.examples), each.values)
            progress.examples += len(each.names)
            tell(progress, None)
    except BaseException:
        if writer:
            writer.drop()
        raise
    if writer is None:
        progress.check()
        raise DataNotFoundError(
            "there is nothing to predict",
            expected="images, tables with rows, or TFRecord files of tf.Examples, among the names",
            todo="name others",
        )
    writer.end()
    return progress


def checked(found: Iterable[Found], chosen: Chosen, note: Callable[[str], None]) -> Iterator[Found]:
    """Refuses inputs that the model has no signature for, and tables without its columns, before they are read.

    Args:
        note: Called once with the features that a table lacks, and that may be missing.
    """
    noted = False
    for each in found:
        if isinstance(each, ImageFile) and chosen.image_shape is None:
            raise chosen.refuse_images()
        if isinstance(each, RecordFile) and chosen.examples is None:
            raise chosen.refuse_examples()
        if isinstance(each, RowFile):
            lacking = chosen.lacking(each)
            if lacking and not noted:
                note(f"{each.name} lacks columns that the model parses, and takes as missing: {listed(lacking)}")
            noted |= bool(lacking)
        yield each
