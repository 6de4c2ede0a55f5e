"""Predicts on a Beam runner: workers predict parts of the inputs, and this process joins the results.

The names and the predictions of a part are files in a folder that this process and the workers share: a job's graph is
too small for ten million names, and most runners return an error as text only.
"""

from __future__ import annotations

import functools
import io
import itertools
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Optional, Union

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.utils.shared import Shared
from tfx.dsl.io import fileio

from tfx_estimator.components.files import first_error, write_error, write_whole
from tfx_estimator.components.served_outputs import Scores
from tfx_estimator.data.sources.image_table import TableImage, image_paths
from tfx_estimator.pipeline.base.errors import PipelineError, TfxEstimatorError
from tfx_estimator.pipeline.config.beam import BeamSection
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.predict.found_model import FoundModel
from tfx_estimator.pipeline.predict.inputs import Found, ImageFile, RecordFile, RowFile, Unread, to_path
from tfx_estimator.pipeline.predict.model import Model, choose
from tfx_estimator.pipeline.predict.session import Prediction, predict

# Images in an element of the Beam pipeline, about: some seconds of work, so that a retry loses little.
_IMAGES = 2_000


@dataclass(frozen=True)
class Call:
    """A model and the arguments of its calls, as sent to the workers."""

    found: FoundModel
    signature: str
    pixels: Optional[tuple[float, float]]
    batch_size: int

    def load(self) -> Model:
        """Loads the model."""
        return Model(choose(self.found, self.signature), self.pixels)


def predict_on_beam(
    call: Call, found: Iterable[Found], section: BeamSection, folder: str
) -> Iterator[Union[Prediction, Unread]]:
    """Yields predictions, and inputs that cannot be read, in the order of `found`.

    Args:
        folder: For files exchanged between this process and the workers; removed at the end.
    """
    fileio.makedirs(folder)
    try:
        count = _write_names(found, folder, call.batch_size)
        try:
            with beam.Pipeline(options=PipelineOptions(section.pipeline_args())) as pipeline:
                _ = (
                    pipeline
                    | "Parts" >> beam.Create(range(count))
                    # Otherwise a runner may fuse all parts into one worker's task.
                    | "Spread" >> beam.Reshuffle()
                    | "Predict" >> beam.ParDo(PredictPart(call, folder))
                )
        except Exception as error:
            raise first_error(folder) or PipelineError(
                f"the Beam runner failed: {error}", expected="a prediction", todo="see its log"
            ) from error
        for number in range(count):
            yield from _read_part(folder, number)
    finally:
        fileio.rmtree(folder)


class PredictPart(beam.DoFn):
    """Predicts one part; each process loads the model once.

    It is idempotent, so a runner may retry a part or run it twice.
    """

    def __init__(self, call: Call, folder: str) -> None:
        self._call, self._folder = call, folder
        self._shared = Shared()
        self._model: Optional[Model] = None

    def process(self, number: int) -> Iterator[int]:
        """Yields the number of examples."""
        try:
            # Not in `setup`, whose error the runner would return as text.
            self._model = self._model or self._shared.acquire(self._call.load)
            found = _read_names(self._folder, number)
            predictions = list(predict(self._model, found, self._call.batch_size, is_part=True))
        except TfxEstimatorError as error:
            write_error(self._folder, error)
            raise
        _write_part(self._folder, number, predictions)
        yield sum(len(each.names) for each in predictions if isinstance(each, Prediction))


def _write_names(found: Iterable[Found], folder: str, batch_size: int) -> int:
    """Writes the inputs of each part, whole batches of images or one file of examples; returns the number of parts."""
    count, images = 0, max(_IMAGES // batch_size, 1) * batch_size
    for is_file, group in itertools.groupby(found, lambda each: isinstance(each, (RecordFile, RowFile))):
        while part := list(itertools.islice(group, 1 if is_file else images)):
            text = "".join(f"{json.dumps(_to_record(each))}\n" for each in part)
            write_whole(_names(folder, count), text)
            count += 1
    return count


def _to_record(each: Found) -> dict[str, Any]:
    if isinstance(each, ImageFile):
        if isinstance(each.path, TableImage):
            return {"image": each.name, "table": _absolute(each.path.table), "row": each.path.name}
        return {"image": each.name, "path": _absolute(str(each.path))}
    if isinstance(each, RecordFile):
        return {"records": each.name, "path": _absolute(each.path), "compression": each.compression}
    if isinstance(each, RowFile):
        return {"rows": each.name, "path": _absolute(each.path), "columns": each.columns}
    return _unread_record(each)


def _unread_record(each: Unread) -> dict[str, str]:
    return {"unread": each.name, "what": each.what}


def _prediction_record(each: Prediction) -> dict[str, Any]:
    return {"names": each.names, "scores": asdict(each.scores), "cells": each.cells}


def _absolute(path: str) -> str:
    return path if is_address(path) else os.path.abspath(path)


def _read_names(folder: str, number: int) -> Iterator[Found]:
    with fileio.open(_names(folder, number)) as file:
        for line in file:
            record = json.loads(line)
            if "row" in record:
                yield ImageFile(record["image"], _rows(record["table"])[int(record["row"])][1])
            elif "image" in record:
                yield ImageFile(record["image"], to_path(record["path"]))
            elif "records" in record:
                yield RecordFile(record["records"], record["path"], record["compression"])
            elif "rows" in record:
                yield RowFile(record["rows"], record["path"], record["columns"])
            else:
                yield _to_unread(record)


@functools.lru_cache(maxsize=1)
def _rows(table: str) -> list[tuple[str, Any]]:
    return image_paths(to_path(table))


def _to_unread(record: dict[str, str]) -> Unread:
    return Unread(record["unread"], record["what"])


def _write_part(folder: str, number: int, predictions: Sequence[Union[Prediction, Unread]]) -> None:
    records = [_unread_record(each) if isinstance(each, Unread) else _prediction_record(each) for each in predictions]
    scores = [each.values for each in predictions if isinstance(each, Prediction)]
    content = io.BytesIO()
    all_scores = np.concatenate(scores) if scores else np.zeros((0, 0), np.float32)
    np.savez(content, records=np.frombuffer(json.dumps(records).encode(), np.uint8), scores=all_scores)
    path = _scores_file(folder, number)
    draft = f"{path}.{uuid.uuid4().hex}"
    with fileio.open(draft, "wb") as file:
        file.write(content.getvalue())
    fileio.rename(draft, path, overwrite=True)


def _read_part(folder: str, number: int) -> Iterator[Union[Prediction, Unread]]:
    with fileio.open(_scores_file(folder, number), "rb") as file:
        content = np.load(io.BytesIO(file.read()), allow_pickle=False)
    scores, done = content["scores"], 0
    for record in json.loads(content["records"].tobytes()):
        if "unread" in record:
            yield _to_unread(record)
        else:
            names = record["names"]
            values = scores[done : done + len(names)]
            yield Prediction(names, values, Scores(**record["scores"]), record["cells"])
            done += len(names)


def _names(folder: str, number: int) -> str:
    return os.path.join(folder, f"names-{number:06}.jsonl")


def _scores_file(folder: str, number: int) -> str:
    return os.path.join(folder, f"predictions-{number:06}.npz")
