"""The schema that a pipeline keeps of its table: its text, and what differs from it in the rows read before Beam."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tfx_estimator.pipeline.base.errors import DataError, DataValidationError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.user_data.reading import listed
from tfx_estimator.pipeline.user_data.table import TableReading
from tfx_estimator.pipeline.user_data.table_file import BYTES, EMPTY, FLOAT, INT, KINDS, WORDS, kind_of

# Tags of a label of numbers in a schema, whose domains are of words alone.
_CLASS = "class "


def read_schema(text: str, place: str) -> Any:
    """Parses a schema, in TFDV's own words; returns a `schema_pb2.Schema`.

    Raises:
        DataError: It is none.
    """
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    try:
        schema = text_format.Parse(text, schema_pb2.Schema())
        why = "" if schema.feature else "it has no feature"
    except text_format.ParseError as error:
        why = str(error)
    if not why:
        return schema
    raise DataError(
        one_line(f"{place} is not a schema: {why}"),
        expected="text of tensorflow_metadata's Schema: feature { name: … }",
        todo="correct it, or remove it",
    )


def is_checked(feature: Any) -> bool:
    """Returns whether TFDV checks a feature of a schema: not one of a lifecycle stage such as DEPRECATED."""
    from tensorflow_metadata.proto.v0 import schema_pb2

    return feature.lifecycle_stage in (schema_pb2.UNKNOWN_STAGE, schema_pb2.BETA, schema_pb2.PRODUCTION)


def way_out(place: str) -> str:
    """Returns what to do if rows differ from the schema that is kept at a place."""
    return f"correct the rows, or edit {place}, or remove it to have it inferred from these rows"


def check_kept(place: str, reading: TableReading) -> None:
    """Checks the rows read against a kept schema, if there is one.

    Raises:
        DataError: A column is gone, new or of another kind; or the file is no schema.
    """
    if found := compare_kept(place, reading):
        raise _another(place, reading, found)


def check_classes(place: str, reading: TableReading, label: str, values: Iterable[str]) -> None:
    """Checks all values of a label of numbers against the classes of a kept schema, which a new one would renumber.

    Raises:
        DataError: One is new.
    """
    known = {*map(float, classes_of(place, label))}
    if new := sorted({*map(float, values)} - known) if known else []:
        raise _another(place, reading, [f"column {label} holds '{new[0]:.15g}', which is a new class"])


def _another(place: str, reading: TableReading, found: list[str]) -> DataValidationError:
    return DataValidationError(
        one_line(f"{reading.place} is another table than before: {listed(found)}"),
        expected=one_line(f"the columns of {place}, which an earlier run inferred"),
        todo=one_line(f"{way_out(place)}, then run the pipeline again"),
    )


def compare_kept(place: str, reading: TableReading) -> list[str]:
    """Returns how the rows read differ from a kept schema, if there is one."""
    try:
        text = Path(place).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    return list(_differences(read_schema(text, place), reading))


def keep_classes(schema: Any, label: str, classes: Sequence[str]) -> None:
    """Adds the classes of a label of numbers; those of words are its domain."""
    from tensorflow_metadata.proto.v0 import schema_pb2

    for feature in schema.feature:
        if feature.name == label and feature.type != schema_pb2.BYTES:
            feature.annotation.tag.extend(f"{_CLASS}{name}" for name in classes)


def _classes_of(feature: Any) -> set[str]:
    """Returns the numbers that `keep_classes` added."""
    return {tag.removeprefix(_CLASS) for tag in feature.annotation.tag if tag.startswith(_CLASS)}


def classes_of(place: str, label: str) -> set[str]:
    """Returns the classes of a label that a schema, if it is there, lists."""
    try:
        text = Path(place).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return set()
    schema = read_schema(text, place)
    domains = {domain.name: domain for domain in schema.string_domain}
    found = [feature for feature in schema.feature if feature.name == label]
    words = {word for each in found for word in domains.get(each.domain, each.string_domain).value}
    return words.union(*map(_classes_of, found))


def _differences(schema: Any, reading: TableReading) -> Iterator[str]:
    """Yields the columns that are gone, new or of another kind, as TFDV would find in all rows."""
    from tensorflow_metadata.proto.v0 import schema_pb2

    kinds = {schema_pb2.INT: INT, schema_pb2.FLOAT: FLOAT, schema_pb2.BYTES: BYTES}
    features = {feature.name: feature for feature in schema.feature}
    for name, feature in features.items():
        is_due = is_checked(feature) and (feature.presence.min_count or feature.presence.min_fraction)
        if is_due and reading.column(name) is None:
            yield f"column {name} is gone"
    for column in reading.columns:
        if (known := features.get(column.name)) is None:
            yield f"column {column.name} is new"
            continue
        kind = kinds.get(known.type, column.kind) if is_checked(known) and column.kind != EMPTY else column.kind
        # Rows that were not read may yet be of the greater kind.
        is_known = reading.is_whole or reading.key != "csv"
        if column.kind != kind and (is_known or KINDS.index(column.kind) > KINDS.index(kind)):
            cell = next((cell for cell in column.values if kind_of(cell) == column.kind), next(iter(column.values), ""))
            yield f"column {column.name} holds {WORDS[column.kind]} ({cell!r}), not {WORDS[kind]}"
            continue
        classes = {*map(float, _classes_of(known))} if column.kind != BYTES else set()
        if other := [cell for cell in column.values if classes and float(cell) not in classes]:
            yield f"column {column.name} holds {other[0]!r}, which is a new class"
