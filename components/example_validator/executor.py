"""The executor of ExampleValidator."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import anomalies_pb2, path_pb2, schema_pb2, statistics_pb2
from tfx.components.example_validator import executor as tfx_executor
from tfx.components.example_validator import labels
from tfx.components.statistics_gen import stats_artifact_utils
from tfx.dsl.io import fileio
from tfx.proto.orchestration import execution_result_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import io_utils, writer_utils

from tfx_estimator.components import read_files
from tfx_estimator.components.execution import Artifacts
from tfx_estimator.components.files import write_whole
from tfx_estimator.components.schema_gen.executor import common, filled, find, in_order
from tfx_estimator.data.features import IMAGE
from tfx_estimator.pipeline.base.errors import DataValidationError
from tfx_estimator.pipeline.user_data.schema import is_checked, way_out

IMAGE_BYTES_KEY, DECLARED_KEY, DAYS_KEY = "image_bytes", "declared", "days"


class Executor(tfx_executor.Executor):
    """Validates as TFX does, checks the length of images, counts empty cells, and raises an error on an anomaly.

    A table's schema is kept once its rows fit it: the next ones are checked against it, even if the training fails.
    """

    def Do(
        self,
        input_dict: Artifacts,
        output_dict: Artifacts,
        exec_properties: dict[str, Any],
    ) -> execution_result_pb2.ExecutorOutput:
        """Writes the anomalies of each split."""
        self._image_bytes = exec_properties.get(IMAGE_BYTES_KEY)
        self._found: list[str] = []
        schema = artifact_utils.get_single_instance(input_dict[standard_component_specs.SCHEMA_KEY])
        declared = exec_properties.get(DECLARED_KEY)
        kept = "" if declared else read_files.copy_of(schema)
        is_new = kept != "" and not fileio.exists(kept)
        days = in_order(input_dict[standard_component_specs.STATISTICS_KEY])
        checked = exec_properties.get(DAYS_KEY) or 1
        # The anomalies of the newest day are the ones that stay.
        for before, day in list(zip([None, *days], days))[-checked:]:
            self._before, self._day = before, f" of day {day.span}" if DAYS_KEY in exec_properties else ""
            inputs = {**input_dict, standard_component_specs.STATISTICS_KEY: [day]}
            output = super().Do(inputs, output_dict, exec_properties)
        if self._found:
            raise DataValidationError(
                f"the examples have {len(self._found)} anomalies:\n  - " + "\n  - ".join(self._found),
                expected=f"in every example one {IMAGE!r} of {self._image_bytes:,} bytes and one label in range"
                if self._image_bytes
                else "examples that fit the schema",
                todo="fix the data set (or data.image_size), then run the pipeline again"
                if self._image_bytes
                else f"correct the rows, or {declared}, that data.schema names, then run the pipeline again"
                if declared
                else f"{way_out(kept) if kept and not is_new else 'correct the rows'}, then run the pipeline again",
            )
        if is_new:
            with fileio.open(io_utils.get_only_uri_in_dir(schema.uri), "rb") as file:
                write_whole(kept, file.read())
        return output

    def _Validate(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> anomalies_pb2.Anomalies:  # noqa: N802
        anomalies = super()._Validate(inputs, outputs)
        (statistics,) = inputs[standard_component_specs.STATISTICS_KEY].datasets
        folder = outputs[labels.SCHEMA_DIFF_PATH]
        split = os.path.basename(os.path.normpath(folder)).removeprefix("Split-")
        place = os.path.join(folder, tfx_executor.DEFAULT_FILE_NAME)
        if self._before is not None and split in artifact_utils.decode_split_names(self._before.split_names):
            # TFX compares with no other day.
            anomalies = tfdv.validate_statistics(
                inputs[standard_component_specs.STATISTICS_KEY],
                inputs[standard_component_specs.SCHEMA_KEY],
                previous_statistics=stats_artifact_utils.load_statistics(self._before, split).proto(),
            )
            writer_utils.write_anomalies(place, anomalies)
        if self._image_bytes:
            found = _check_lengths(statistics, self._image_bytes, anomalies)
        else:
            found = _check_empty(statistics, inputs[standard_component_specs.SCHEMA_KEY], anomalies)
        if found:
            writer_utils.write_anomalies(place, anomalies)
        self._found += (
            f"split {split!r}{self._day}, {line}" for line in _lines(anomalies, statistics, not self._image_bytes)
        )
        return anomalies


def _check_lengths(
    statistics: statistics_pb2.DatasetFeatureStatistics, image_bytes: int, anomalies: anomalies_pb2.Anomalies
) -> bool:
    """Adds an anomaly if an image has another length, which TFDV's schema cannot express."""
    feature = find(statistics, IMAGE)
    if feature is None or not feature.HasField("bytes_stats"):
        return False  # TFDV has an anomaly for it: missing, or not bytes
    shortest, longest = int(feature.bytes_stats.min_num_bytes), int(feature.bytes_stats.max_num_bytes)
    if shortest == longest == image_bytes:
        return False
    text = f"Images of {shortest:,} to {longest:,} bytes, expected exactly {image_bytes:,}."
    _add(anomalies, IMAGE, "Wrong image size", text)
    return True


def _check_empty(
    statistics: statistics_pb2.DatasetFeatureStatistics, schema: schema_pb2.Schema, anomalies: anomalies_pb2.Anomalies
) -> bool:
    """Adds an anomaly for each column with too many empty cells, which TFDV counts as present."""
    found = [each for each in schema.feature if is_checked(each) and find(statistics, each.name) is not None]
    # A column without any value is an anomaly of TFDV.
    # TFX's own inference writes 1 for a column of empty cells as well.
    few = [each for each in found if 0 < filled(statistics, each.name) < each.presence.min_fraction < 1]
    for each in few:
        empty, least = 1 - filled(statistics, each.name), each.presence.min_fraction
        text = f"{empty:.1%} of the cells are empty, at most {1 - least:.0%} may be (min_fraction: {least:g})."
        _add(anomalies, each.name, "Empty cells", text)
    return bool(few)


def _add(anomalies: anomalies_pb2.Anomalies, name: str, short: str, description: str) -> None:
    info = anomalies.anomaly_info[name]
    info.path.CopyFrom(path_pb2.Path(step=[name]))
    info.severity = anomalies_pb2.AnomalyInfo.ERROR
    info.reason.add(type=anomalies_pb2.AnomalyInfo.CUSTOM_VALIDATION, short_description=short, description=description)
    info.short_description = "Multiple errors" if len(info.reason) > 1 else short
    info.description = " ".join(each.description for each in info.reason)


def _lines(
    anomalies: anomalies_pb2.Anomalies, statistics: statistics_pb2.DatasetFeatureStatistics, is_table: bool
) -> Iterator[str]:
    """Yields one line for each anomaly of severity ERROR."""
    if anomalies.data_missing:
        yield "it has no examples"
    if anomalies.dataset_anomaly_info.severity == anomalies_pb2.AnomalyInfo.ERROR:
        yield anomalies.dataset_anomaly_info.description
    for name, info in sorted(anomalies.anomaly_info.items()):
        if info.severity != anomalies_pb2.AnomalyInfo.ERROR:
            continue
        feature = find(statistics, name)
        present = _present(common(feature), is_table) if feature is not None else 0
        count = ""
        if present < statistics.num_examples:
            missing = statistics.num_examples - present
            count = f" (missing in {missing:,} of {statistics.num_examples:,} examples)"
        for reason in info.reason:
            yield f"feature {name!r}: {reason.short_description}: {reason.description}{count}"


def _present(common: statistics_pb2.CommonStatistics, is_table: bool) -> int:
    """Returns the number of examples with a value; a column of a table has one value at most."""
    return min(common.num_non_missing, common.tot_num_values) if is_table else common.num_non_missing
