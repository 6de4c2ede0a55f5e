"""The executor of ExampleValidator."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from tensorflow_metadata.proto.v0 import anomalies_pb2, path_pb2, statistics_pb2
from tfx.components.example_validator import executor as tfx_executor
from tfx.components.example_validator import labels
from tfx.proto.orchestration import execution_result_pb2
from tfx.types import standard_component_specs
from tfx.utils import writer_utils

from tfx_estimator.components.execution import Artifacts
from tfx_estimator.data.features import IMAGE
from tfx_estimator.pipeline.base.errors import DataValidationError

IMAGE_BYTES_KEY = "image_bytes"


class Executor(tfx_executor.Executor):
    """Validates as TFX does, checks the length of images, and raises an error on an anomaly."""

    def Do(
        self,
        input_dict: Artifacts,
        output_dict: Artifacts,
        exec_properties: dict[str, Any],
    ) -> execution_result_pb2.ExecutorOutput:
        """Writes the anomalies of each split."""
        self._image_bytes = exec_properties.get(IMAGE_BYTES_KEY)
        self._found: list[str] = []
        output = super().Do(input_dict, output_dict, exec_properties)
        if self._found:
            raise DataValidationError(
                f"the examples have {len(self._found)} anomalies:\n  - " + "\n  - ".join(self._found),
                expected=f"in every example one {IMAGE!r} of {self._image_bytes:,} bytes and one label in range"
                if self._image_bytes
                else "examples that fit the schema",
                todo="fix the data set (or data.image_size), then run the pipeline again"
                if self._image_bytes
                else "correct the rows, or the schema that data.schema names, then run the pipeline again",
            )
        return output

    def _Validate(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> anomalies_pb2.Anomalies:  # noqa: N802
        anomalies = super()._Validate(inputs, outputs)
        (statistics,) = inputs[standard_component_specs.STATISTICS_KEY].datasets
        folder = outputs[labels.SCHEMA_DIFF_PATH]
        if self._image_bytes and _check_lengths(statistics, self._image_bytes, anomalies):
            writer_utils.write_anomalies(os.path.join(folder, tfx_executor.DEFAULT_FILE_NAME), anomalies)
        split = os.path.basename(os.path.normpath(folder)).removeprefix("Split-")
        self._found += (f"split {split!r}, {line}" for line in _lines(anomalies, statistics))
        return anomalies


def _check_lengths(
    statistics: statistics_pb2.DatasetFeatureStatistics, image_bytes: int, anomalies: anomalies_pb2.Anomalies
) -> bool:
    """Adds an anomaly if an image has another length, which TFDV's schema cannot express."""
    feature = _feature(statistics, IMAGE)
    if feature is None or not feature.HasField("bytes_stats"):
        return False  # TFDV has an anomaly for it: missing, or not bytes
    shortest, longest = int(feature.bytes_stats.min_num_bytes), int(feature.bytes_stats.max_num_bytes)
    if shortest == longest == image_bytes:
        return False
    info = anomalies.anomaly_info[IMAGE]
    info.path.CopyFrom(path_pb2.Path(step=[IMAGE]))
    info.severity = anomalies_pb2.AnomalyInfo.ERROR
    reason = info.reason.add(
        type=anomalies_pb2.AnomalyInfo.CUSTOM_VALIDATION,
        short_description="Wrong image size",
        description=f"Images of {shortest:,} to {longest:,} bytes, expected exactly {image_bytes:,}.",
    )
    several = len(info.reason) > 1
    info.short_description = "Multiple errors" if several else reason.short_description
    info.description = " ".join(each.description for each in info.reason)
    return True


def _lines(anomalies: anomalies_pb2.Anomalies, statistics: statistics_pb2.DatasetFeatureStatistics) -> Iterator[str]:
    """Yields one line for each anomaly of severity ERROR."""
    if anomalies.data_missing:
        yield "it has no examples"
    if anomalies.dataset_anomaly_info.severity == anomalies_pb2.AnomalyInfo.ERROR:
        yield anomalies.dataset_anomaly_info.description
    for name, info in sorted(anomalies.anomaly_info.items()):
        if info.severity != anomalies_pb2.AnomalyInfo.ERROR:
            continue
        feature = _feature(statistics, name)
        present = _common(feature).num_non_missing if feature is not None else 0
        count = ""
        if present < statistics.num_examples:
            missing = statistics.num_examples - present
            count = f" (missing in {missing:,} of {statistics.num_examples:,} examples)"
        for reason in info.reason:
            yield f"feature {name!r}: {reason.short_description}: {reason.description}{count}"


def _feature(
    statistics: statistics_pb2.DatasetFeatureStatistics, name: str
) -> statistics_pb2.FeatureNameStatistics | None:
    return next((feature for feature in statistics.features if list(feature.path.step) == [name]), None)


def _common(feature: statistics_pb2.FeatureNameStatistics) -> statistics_pb2.CommonStatistics:
    return getattr(feature, feature.WhichOneof("stats")).common_stats
