"""Rows as TFX reads them: their schema, and as tf.Examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from tensorflow_metadata.proto.v0 import schema_pb2

# A feature's value: one, several in a list, or None if it is missing.
Row = Mapping[str, Any]


def values_of(value: Any) -> list[Any]:
    """Returns the values of a feature: bytes, ints or floats."""
    if value is None:
        return []
    listed = np.asarray(value).reshape(-1).tolist() if isinstance(value, (np.ndarray, np.generic)) else value
    found = listed if isinstance(listed, (list, tuple)) else [listed]
    return [each.encode() if isinstance(each, str) else each for each in found]


def _kinds(rows: Sequence[Row]) -> dict[str, type]:
    """Returns the type of each feature: bytes, float or int."""
    found: dict[str, set[type]] = {}
    for row in rows:
        for name, value in row.items():
            found.setdefault(name, set()).update(map(type, values_of(value)))
    return {name: next((kind for kind in (bytes, float) if kind in found[name]), int) for name in sorted(found)}


def schema_of(rows: Sequence[Row]) -> schema_pb2.Schema:
    """Infers the schema of rows, as SchemaGen does: a feature with as many values in each row has a shape."""
    from tensorflow_metadata.proto.v0 import schema_pb2

    schema = schema_pb2.Schema()
    types = {bytes: schema_pb2.BYTES, float: schema_pb2.FLOAT, int: schema_pb2.INT}
    for name, kind in _kinds(rows).items():
        feature = schema.feature.add(name=name, type=types[kind])
        counts = {len(values_of(row.get(name))) for row in rows}
        if len(counts) == 1:
            feature.presence.min_fraction = 1.0
            feature.shape.dim.add(size=counts.pop())
    return schema


def serialize(rows: Sequence[Row]) -> list[bytes]:
    """Returns rows as serialized tf.Examples."""
    lists = {bytes: "bytes_list", float: "float_list", int: "int64_list"}
    kinds = _kinds(rows)
    found = []
    for row in rows:
        example = tf.train.Example()
        for name, kind in kinds.items():
            if values := values_of(row.get(name)):
                getattr(example.features.feature[name], lists[kind]).value.extend(values)
        found.append(example.SerializeToString())
    return found


def made_up_rows(schema: schema_pb2.Schema, count: int) -> list[dict[str, Any]]:
    """Makes rows of a schema: numbers of its domains, else from 0 to 9, and words of its domains, else `a` to `j`."""
    from tensorflow_metadata.proto.v0 import schema_pb2

    random = np.random.default_rng(1)
    words = {each.name: list(each.value) for each in schema.string_domain}

    def value(feature: Any) -> Any:
        if feature.type == schema_pb2.BYTES:
            known = list(feature.string_domain.value) or words.get(feature.domain) or list("abcdefghij")
            return str(random.choice(known))
        domain = feature.int_domain if feature.type == schema_pb2.INT else feature.float_domain
        low, high = (domain.min, domain.max) if domain.max > domain.min else (0, 9)
        drawn = random.uniform(low, high)
        return round(drawn) if feature.type == schema_pb2.INT else float(drawn)

    sizes = {each.name: int(np.prod([dim.size for dim in each.shape.dim], dtype=int)) for each in schema.feature}
    return [
        {each.name: [value(each) for _ in range(sizes[each.name])] for each in schema.feature} for _ in range(count)
    ]
