"""What the page sends: an image or a row, predicted as `tfx-estimator predict` does."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from collections.abc import Mapping
from typing import Any, Union

import tensorflow as tf

from tfx_estimator.pipeline.base.errors import TfxEstimatorError
from tfx_estimator.pipeline.predict import session
from tfx_estimator.pipeline.predict.inputs import Inputs, Unread
from tfx_estimator.pipeline.predict.model import Model
from tfx_estimator.pipeline.serve.values import RequestError


def fields_of(model: Model) -> dict[str, str]:
    """Returns the names of the fields of a row, each with `number` or `text`; none for a model of images."""
    if model.chosen.image_shape:
        return {}
    return {
        name: "text" if each.dtype == tf.string.as_datatype_enum else "number"
        for name, each in model.chosen.features.items()
    }


def predict(model: Model, sent: Union[bytes, Mapping[str, Any]]) -> dict[str, Any]:
    """Predicts an image's bytes, or a row.

    Returns:
        `results`: pairs of a class and its probability, the most probable first; of a regression `number`.
    """
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "row.csv" if isinstance(sent, Mapping) else "image")
        with open(name, "wb") as file:
            file.write(_as_csv(sent) if isinstance(sent, Mapping) else sent)
        try:
            columns = () if model.chosen.image_shape else model.chosen.features
            inputs = session.checked(Inputs([name], (), columns), model.chosen, lambda _: None)
            predictions = session.predict(model, inputs, 1)
            one = next(session.with_probabilities(predictions, len(model.chosen.labels), lambda _: None))
        except TfxEstimatorError as error:
            raise RequestError(_named(error.what, folder, model)) from error
    if isinstance(one, Unread):
        raise RequestError(_named(one.what, folder, model))
    labels = model.chosen.labels_of(one.scores, one.values)
    if not labels:
        return {"number": float(one.values[0, 0])}
    pairs = zip(labels, map(float, one.values[0]))
    return {"results": sorted(([label, score] for label, score in pairs), key=lambda pair: -pair[1])}


def _named(what: str, folder: str, model: Model) -> str:
    """Returns an error without the names of the files that were made for it."""
    what = what.replace(f"{folder}/", "").replace("row.csv, line 2: ", "").replace("row.csv", "the row")
    return what.replace(model.chosen.found.folder, "the model")


def _as_csv(row: Mapping[str, Any]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(row)
    writer.writerow(row.values())
    return text.getvalue().encode()
