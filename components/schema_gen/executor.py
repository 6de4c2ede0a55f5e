"""The executor of SchemaGen."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Sequence
from typing import Any, Optional

import tensorflow_data_validation as tfdv
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2
from tfx.components.schema_gen import executor as tfx_executor
from tfx.components.statistics_gen import stats_artifact_utils
from tfx.dsl.io import fileio
from tfx.types import artifact_utils

from tfx_estimator.components import read_files
from tfx_estimator.components.execution import Artifacts
from tfx_estimator.components.files import write_whole
from tfx_estimator.pipeline.user_data.schema import keep_classes, read_schema
from tfx_estimator.pipeline.user_data.table_file import DATE

DECLARED_KEY, KEPT_KEY, LABEL_KEY, HAS_DAYS_KEY, CLASSES_KEY = "declared", "kept", "label", "has_days", "classes"
# Of the rows of a split on another day, so many may have new words, and so many more empty cells.
NEW_WORDS, MORE_EMPTY = 0.05, 0.1
# From one day to the next, a word's share of the rows; of numbers, the Jensen-Shannon divergence, in bits.
DRIFT = 0.1
_HEAD = """\
# The columns of this pipeline's table, as the first run inferred them. Later runs check their rows against this file.
# Edit it (https://www.tensorflow.org/tfx/data_validation/get_started), or remove it to have it inferred anew.
"""


class Executor(tfx_executor.Executor):
    """Copies the declared or kept schema; without one, infers as TFX does, with room for the rows of other days."""

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
        """Writes schema.pbtxt."""
        declared, kept = exec_properties[DECLARED_KEY], exec_properties[KEPT_KEY]
        schema = artifact_utils.get_single_instance(output_dict["schema"])
        path, place = os.path.join(schema.uri, tfx_executor.DEFAULT_FILE_NAME), declared or kept
        if declared or (kept and fileio.exists(kept)):
            with fileio.open(place) as file:
                text = file.read()
            read_schema(text, place)
        else:
            days = in_order(input_dict["statistics"])
            super().Do({**input_dict, "statistics": days[:1]}, output_dict, exec_properties)
            with fileio.open(path) as file:
                inferred = text_format.Parse(file.read(), schema_pb2.Schema())
            statistics = [_load(day) for day in days]
            for day in statistics[1:]:
                for split in day.values():
                    inferred = tfdv.update_schema(inferred, split, infer_feature_shape=False)
            splits = [split.datasets[0] for day in statistics for split in day.values()]
            give_room(inferred, splits, exec_properties[LABEL_KEY])
            keep_classes(inferred, exec_properties[LABEL_KEY], json.loads(exec_properties.get(CLASSES_KEY) or "[]"))
            if exec_properties.get(HAS_DAYS_KEY):
                watch_drift(inferred, statistics)
            text = _HEAD + text_format.MessageToString(inferred)
        fileio.makedirs(schema.uri)
        write_whole(path, text)
        if place:
            read_files.keep_copy(schema, place)


def give_room(schema: schema_pb2.Schema, splits: Sequence[statistics_pb2.DatasetFeatureStatistics], label: str) -> None:
    """Makes an inferred schema one for other days: a new word stops no run, and nor does an empty cell.

    `presence.min_fraction` becomes the share of rows with a value, where TFX counts an empty cell as present, and
    `value_count` would take none.
    """
    for feature in schema.feature:
        if feature.name == label:
            continue
        feature.ClearField("value_count")
        share = min(filled(split, feature.name) for split in splits) - MORE_EMPTY
        feature.presence.min_fraction = max(0, math.floor(100 * share) / 100)
        if not feature.presence.min_fraction:
            # Another day may have none at all.
            feature.ClearField("presence")
        if feature.HasField("bool_domain"):  # which has no share of other words
            words = filter(None, (feature.bool_domain.true_value, feature.bool_domain.false_value))
            feature.ClearField("bool_domain")
            if feature.type == schema_pb2.BYTES:
                feature.string_domain.value.extend(words)
        if feature.WhichOneof("domain_info") in ("domain", "string_domain"):
            least = 0 if _is_open(max(splits, key=lambda each: each.num_examples), feature.name) else 1 - NEW_WORDS
            feature.distribution_constraints.min_domain_mass = least


def watch_drift(
    schema: schema_pb2.Schema, days: Sequence[dict[str, statistics_pb2.DatasetFeatureStatisticsList]]
) -> None:
    """Adds how far a column may drift from a day to the next: twice what it did, at least DRIFT, or chance in few rows.

    Source: https://www.tensorflow.org/tfx/data_validation/get_started#checking_data_skew_and_drift.
    """
    for feature in schema.feature:
        is_word = feature.type == schema_pb2.BYTES
        comparator = feature.drift_comparator
        norm = comparator.infinity_norm if is_word else comparator.jensen_shannon_divergence
        norm.threshold = 0.0
    seen: dict[str, float] = {}
    # What chance does is seen between the splits of a day, too.
    pairs = [
        (before[name], day[name]) for before, day in itertools.pairwise(days) for name in day.keys() & before.keys()
    ]
    pairs += [pair for day in days for pair in itertools.pairwise(day.values())]
    for before, now in pairs:
        for each in tfdv.validate_statistics(now, schema, previous_statistics=before).drift_skew_info:
            name = ".".join(each.path.step)
            seen[name] = max([seen.get(name, 0.0), *(measured.value for measured in each.drift_measurements)])
    splits = [split.datasets[0] for day in days for split in day.values()]
    least = max(DRIFT, 4 * math.sqrt(1 / (2 * min(split.num_examples for split in splits))))
    largest = max(splits, key=lambda split: split.num_examples)
    for feature in schema.feature:
        limit, is_word = round(max(least, 2 * seen.get(feature.name, 0.0)), 3), feature.type == schema_pb2.BYTES
        # A column of dates is another one each day; a divergence of long tails tells nothing.
        is_other = _is_open(largest, feature.name) if is_word else _has_tail(largest, feature.name)
        if limit >= 1 or is_other:
            feature.ClearField("drift_comparator")
        elif is_word:
            feature.drift_comparator.infinity_norm.threshold = limit
        else:
            feature.drift_comparator.jensen_shannon_divergence.threshold = limit


def _has_tail(split: statistics_pb2.DatasetFeatureStatistics, name: str) -> bool:
    """Returns whether most values share one bucket of TFDV's ten equal ones.

    Within it TFDV takes them for uniform: its divergence of two days is then that of their largest values.
    """
    feature = find(split, name)
    kind = statistics_pb2.Histogram.STANDARD
    found = [each for each in feature.num_stats.histograms if each.type == kind] if feature else []
    counts = [bucket.sample_count for each in found for bucket in each.buckets]
    return not counts or max(counts) > sum(counts) / 2


def in_order(statistics: Sequence[Any]) -> list[Any]:
    """Returns the artifacts of statistics in the order of their days."""
    return sorted(statistics, key=lambda each: each.span)


def _load(statistics: Any) -> dict[str, statistics_pb2.DatasetFeatureStatisticsList]:
    """Returns the statistics of a day, by split."""
    names = artifact_utils.decode_split_names(statistics.split_names)
    return {name: stats_artifact_utils.load_statistics(statistics, name).proto() for name in names}


def filled(split: statistics_pb2.DatasetFeatureStatistics, name: str) -> float:
    """Returns the share of rows that have a value in a column."""
    feature = find(split, name)
    if feature is None:
        return 0.0
    # A row may have several values.
    return min(common(feature).tot_num_values, common(feature).num_non_missing) / split.num_examples


def find(split: statistics_pb2.DatasetFeatureStatistics, name: str) -> Optional[statistics_pb2.FeatureNameStatistics]:
    """Returns the statistics of a feature; None if there is none."""
    return next((feature for feature in split.features if list(feature.path.step) == [name]), None)


def common(feature: statistics_pb2.FeatureNameStatistics) -> statistics_pb2.CommonStatistics:
    """Returns what is counted of a feature of any type."""
    return getattr(feature, feature.WhichOneof("stats")).common_stats


def _is_open(split: statistics_pb2.DatasetFeatureStatistics, name: str) -> bool:
    """Returns whether another day has other words: dates, or so many words that occur once (Good and Turing)."""
    feature = find(split, name)
    buckets = feature.string_stats.rank_histogram.buckets if feature else ()
    once = sum(bucket.sample_count == 1 for bucket in buckets)
    return once > NEW_WORDS * split.num_examples or all(DATE.fullmatch(bucket.label) for bucket in buckets)
