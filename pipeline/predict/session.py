"""Predicts what was named: reads, calls the model, writes; and counts what was done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Optional, Union

import numpy as np

from tfx_estimator.pipeline.base.cpus import available_cpus
from tfx_estimator.pipeline.base.errors import DamagedDataError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.predict.inputs import Found, ImageFile, RecordFile, Unread
from tfx_estimator.pipeline.predict.model import Chosen, Model
from tfx_estimator.pipeline.predict.output import Writer
from tfx_estimator.pipeline.predict.reading import batches


@dataclass(frozen=True)
class Answer:
    """A batch.

    Args:
        names: Of its examples.
        probabilities: float32 [batch, classes].
    """

    names: Sequence[str]
    probabilities: np.ndarray


@dataclass
class Progress:
    """How far it is."""

    examples: int = 0
    unread: list[Unread] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def __str__(self) -> str:
        rate = self.examples / max(time.monotonic() - self.started, 1e-9)
        return f"{self.examples:,} predicted, {rate:,.0f} a second"

    def check(self) -> None:
        """Refuses what could not be read, once all else is done."""
        if self.unread:
            raise DamagedDataError(
                f"{len(self.unread):,} could not be read, first {one_line(self.unread[0].name)}",
                expected=f"what can be read; the {self.examples:,} others are predicted",
                todo="fetch them again, or leave them out",
            )


def answer(model: Model, found: Iterable[Found], batch_size: int) -> Iterator[Union[Answer, Unread]]:
    """Yields what the model says, batch by batch, and what cannot be read, in the order of what was found."""
    chosen = model.chosen
    height, width, channels = chosen.image_shape or (None, None, 3)
    resized = (height, width) if height and width else None
    for each in batches(_refusing(found, chosen), channels, resized, batch_size, available_cpus()):
        if isinstance(each, Unread):
            yield each
        elif isinstance(each.values, np.ndarray):
            yield Answer(each.names, model.predict_images(each.values))
        else:
            yield Answer(each.names, model.predict_examples(each.values))


def write(
    answers: Iterable[Union[Answer, Unread]],
    make_writer: Callable[[int], Writer],
    tell: Callable[[Progress, Optional[Unread]], None],
) -> Progress:
    """Writes what the model says.

    Args:
        make_writer: Of the number of classes.
        tell: Is told how far it is, and what cannot be read.
    """
    progress = Progress()
    writer: Optional[Writer] = None
    for each in answers:
        if isinstance(each, Unread):
            progress.unread.append(each)
            tell(progress, each)
            continue
        writer = writer or make_writer(each.probabilities.shape[1])
        writer.write(each.names, each.probabilities)
        progress.examples += len(each.names)
        tell(progress, None)
    (writer or make_writer(0)).end()
    return progress


def _refusing(found: Iterable[Found], chosen: Chosen) -> Iterator[Found]:
    """Refuses what the model has no signature for, before it is read."""
    for each in found:
        if isinstance(each, ImageFile) and chosen.image_shape is None:
            raise chosen.refuse_images()
        if isinstance(each, RecordFile) and chosen.examples is None:
            raise chosen.refuse_examples()
        yield each
