"""Frozen analyzers: the transform graph of an earlier day, whose vocabularies grow at their ends."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform.tf_metadata import dataset_metadata, metadata_io, schema_utils

from tfx_estimator.components.trainer.vocabularies import read_vocabularies
from tfx_estimator.pipeline.base.errors import DataError

# Folders of a transform graph.
_MODEL, _METADATA = tft.TFTransformOutput.TRANSFORM_FN_DIR, tft.TFTransformOutput.TRANSFORMED_METADATA_DIR


@dataclass(frozen=True)
class Frozen:
    """What today's Transform takes over. Its entry of custom_config has these fields.

    Args:
        graph: The transform graph of an earlier day.
        label: The feature whose vocabulary stays as it is: a model has an output for each of its words.
        most: A vocabulary grows up to so many words; 0 for as many as today's would have.
    """

    graph: str
    label: str
    most: int = 0

    def check(self, schema: schema_pb2.Schema) -> None:
        """Checks that the graph takes the columns of a schema.

        Raises:
            DataError: They are others.
        """
        old, new = map(_spec, (tft.TFTransformOutput(self.graph).raw_metadata.schema, schema))
        if other := sorted(name for name in {*old, *new} if old.get(name) != new.get(name)):
            raise DataError(
                "the analyzers are frozen, and these columns are gone, new, or of another type or presence since: "
                + ", ".join(other),
                expected=f"the columns of {self.graph}",
                todo="run once with --set transform.analyzers=null, which analyses the columns anew",
            )

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Makes TFX's executor publish this graph in place of the one that it has analysed."""
        own = tft_beam.AnalyzeDatasetWithCache
        tft_beam.AnalyzeDatasetWithCache = functools.partial(_Analysis, self)
        try:
            yield
        finally:
            tft_beam.AnalyzeDatasetWithCache = own


class _Analysis(tft_beam.AnalyzeDatasetWithCache):
    """Analyses today's rows for their words, and returns the frozen graph with them."""

    def __init__(self, frozen: Frozen, preprocessing_fn: Any, pipeline: Any = None) -> None:
        super().__init__(preprocessing_fn, pipeline)
        self._frozen = frozen

    def expand(self, dataset: Any) -> Any:
        """Returns the graph, its schema, and the cache."""
        (today, metadata), cache = super().expand(dataset)
        folder = today | "Freeze" >> beam.Map(grow, metadata.asset_map, self._frozen)
        model = folder | "Graph" >> beam.Map(os.path.join, _MODEL).with_output_types(str)
        # Beam infers no type of a property, which TransformDataset checks.
        schema = folder | "Schema" >> beam.Map(_read_metadata).with_output_types(dataset_metadata.DatasetMetadata)
        assets = _assets(self._frozen.graph)
        return (model, metadata._replace(deferred_metadata=schema, asset_map=assets)), cache


def grow(today: str, files: Mapping[str, str], frozen: Frozen) -> str:
    """Copies a frozen graph, with today's new words at the ends of its vocabularies, the most frequent first.

    Args:
        today: The SavedModel of today's analysis.
        files: Of its vocabularies: the files in its assets, by name.

    Returns:
        The copy: a folder of a transform graph.
    """
    # An engine may do this twice.
    place = tempfile.mkdtemp(prefix="frozen-", dir=os.path.dirname(today))
    shutil.copytree(frozen.graph, place, dirs_exist_ok=True)
    features = read_vocabularies(place)
    for name, file in _assets(place).items():
        path = os.path.join(place, _MODEL, "assets", file)
        known = _words(path)
        seen = {*known}
        of_features = {feature for feature, each in features.items() if each.words == known}
        # Of a file that no feature numbers by its lines, nothing is known.
        if (
            name not in files
            or frozen.label in of_features
            or not any(features[each].is_feature for each in of_features)
        ):
            continue
        found = _words(os.path.join(today, "assets", files[name]))
        room = max(0, (frozen.most or len(found)) - len(known))
        # by_schema writes a word that no data have where there is none.
        new = [word for word in found if word not in seen and word[:1] != b"\x01"][:room]
        with open(path, "ab") as words:
            words.writelines(word + b"\n" for word in new)
    _tell_sizes(place)
    return place


def _tell_sizes(place: str) -> None:
    """Writes the vocabularies' sizes into the schema of a grown graph, which has those of its analysis."""
    metadata = tft.TFTransformOutput(place).transformed_metadata
    numbered = read_vocabularies(place)
    for feature in metadata.schema.feature:
        if (now := numbered.get(feature.name)) and now.is_feature and feature.int_domain.is_categorical:
            feature.int_domain.max = max(feature.int_domain.max, now.lengths[1] - 1)
    metadata_io.write_metadata(metadata, os.path.join(place, _METADATA))


def _read_metadata(graph: str) -> dataset_metadata.DatasetMetadata:
    return tft.TFTransformOutput(graph).transformed_metadata


def _assets(graph: str) -> dict[str, str]:
    """Returns the files of a transform graph's vocabularies, by name."""
    path = os.path.join(graph, _METADATA, tft.TFTransformOutput.ASSET_MAP)
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        return dict(json.load(file))


def _words(path: str) -> tuple[bytes, ...]:
    with open(path, "rb") as file:
        return tuple(line.rstrip(b"\n") for line in file)


def _spec(schema: schema_pb2.Schema) -> dict[str, Any]:
    """Returns how TensorFlow parses the columns."""
    return dict(schema_utils.schema_as_feature_spec(schema).feature_spec)
