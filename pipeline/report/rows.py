"""The rows of a table that a run predicts: their labels after the preprocessing, and their cells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from tfx_estimator.data.table_preprocessing import categories_of
from tfx_estimator.pipeline.config.task import BINARY, REGRESSION, Task
from tfx_estimator.pipeline.report.artifacts import Output, Outputs, need
from tfx_estimator.pipeline.report.examples import DataSet, Shown, files_of
from tfx_estimator.pipeline.report.page import LeftOutError

_BATCH = 500
# Columns that a page shows of a row, and the longest cell.
_COLUMNS, _LONGEST = 12, 40


@dataclass(frozen=True)
class Rows(DataSet):
    """The examples of a run on a table."""

    task: Task
    graph: str  # folder of the transform graph

    @property
    def is_binary(self) -> bool:
        """True for two classes of which the second is predicted."""
        return self.task.kind == BINARY

    @property
    def is_regression(self) -> bool:
        """See `DataSet`."""
        return self.task.kind == REGRESSION

    def batches(self, split: str, most: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """See `DataSet`; the rows themselves tell them apart. Rows without a label are left out."""
        output = tft.TFTransformOutput(self.graph)
        spec, layer = output.raw_feature_spec(), output.transform_features_layer()
        dtype = tf.float64 if self.is_regression else tf.int64

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def read(serialized: tf.Tensor) -> tf.Tensor:
            return tf.cast(tf.reshape(layer(tf.io.parse_example(serialized, spec))[self.task.label], [-1]), dtype)

        records = tf.data.TFRecordDataset(sorted(self.files[split]), "GZIP").take(most).batch(_BATCH)
        for serialized in records.as_numpy_iterator():
            labels = read(tf.constant(serialized)).numpy()
            known = np.isfinite(labels) if self.is_regression else (labels >= 0) & (labels < len(self.names))
            yield serialized[known], serialized[known], labels[known]

    def show(self, content: bytes) -> Shown:
        """Returns the cells of a row, by column."""
        features = tf.train.Example.FromString(content).features.feature
        names = [name for name in sorted(features) if name != self.task.label]
        shown = [(name, _cell(features[name])) for name in names[:_COLUMNS]]
        return [*shown, ("…", f"and {len(names) - _COLUMNS} more columns")] if names[_COLUMNS:] else shown


def open_rows(outputs: Outputs, examples: Output, task: Task) -> Rows:
    """Finds the rows of a run; raises LeftOutError if their classes are not known."""
    graph = need(outputs, "Transform", "transform_graph").uri
    # As the Trainer counts them.
    sizes = {} if task.names else categories_of(tft.TFTransformOutput(graph).transformed_metadata.schema)
    known = 0 if task.kind == REGRESSION else sizes.get(task.label, 0)
    names = list(task.names) or [str(label) for label in range(known)]
    if not names and task.kind != REGRESSION:
        raise LeftOutError(f"How many classes the label {task.label} has is not known.")
    title = f"a table with the label {task.label}"
    return Rows(title, (), names, files_of(examples), {}, task, graph)


def _cell(feature: tf.train.Feature) -> str:
    kind = feature.WhichOneof("kind")
    values = list(getattr(feature, kind).value) if kind else []
    texts = [
        each.decode("utf-8", "replace") if isinstance(each, bytes) else f"{each:.6g}" for each in values[:_COLUMNS]
    ]
    text = ", ".join(texts)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
