"""The first rows of a TFRecord file of tf.Examples, and why TFX would not take it. Needs protobuf, not TensorFlow."""

from __future__ import annotations

import functools
import gzip
import itertools
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tfx_estimator.pipeline.base.errors import DamagedDataError, DataError
from tfx_estimator.pipeline.base.files import open_regular
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.user_data.table_file import (
    BYTES,
    EMPTY,
    FLOAT,
    INT,
    WORDS,
    Cell,
    TableFile,
    shortest,
    to_cell,
    to_text,
)

NAME, PATTERN, UNIT = "TFRecord", "*tfrecord*", "record"
# A record is its length in 8 bytes, a checksum of that in 4, the data, and their checksum in 4.
HEAD = struct.Struct("<8sI")
_LENGTH = struct.Struct("<Q")
_FOOT = 4
_FLOAT = struct.Struct("<f")
# The least varint of two bytes.
_SHORT = 0x80
_GZIP = b"\x1f\x8b"
# The most that is read of a file.
_MOST_BYTES = 64 << 20


def read_file(path: Path, rows: int, cells: int) -> TableFile:
    """Reads so many records or cells at most, but one record; a record's number counts from 0.

    Raises:
        DataError: It is no TFRecord file, or cut, or holds something else than tf.Examples.
    """
    kinds: dict[str, str] = {}
    found: list[dict[str, Cell]] = []
    records, size = _records(path), 0
    for number, record in enumerate(records):
        if number and (number >= rows or cells <= 0 or size > _MOST_BYTES):
            records.close()
            return _to_file(path, found, kinds, False)
        row = {}
        for name, kind, cell in _features(path, number, record):
            if kinds.setdefault(name, kind) == EMPTY:
                kinds[name] = kind
            elif kind not in (EMPTY, kinds[name]):
                others = f"{WORDS[kinds[name]]} in records before it"
                what = f"column {name} holds {WORDS[kind]} in record {number:,} of {path}, but {others}"
                todo = "write all records with one type, or leave out the file"
                raise DataError(one_line(what), expected="one kind everywhere", todo=todo)
            row[name] = cell
        found.append(row)
        size, cells = size + len(record), cells - len(row)
    if found and not kinds:
        _refuse_records(path, "they have no feature")
    return _to_file(path, found, kinds, True)


def check(file: TableFile, first: TableFile) -> None:
    """Accepts any columns: a feature that a record lacks is missing."""


def scan(path: Path, name: str) -> Iterator[tuple[int, Cell]]:
    """Yields the number and the cell of a column in all records."""
    for number, record in enumerate(_records(path)):
        yield number, next((cell for _, _, cell in _features(path, number, record, name)), "")


def holds_features(path: Path) -> bool:
    """Returns whether it is a TFRecord file."""
    with open_regular(path) as file:
        head = file.read(HEAD.size)
    return head.startswith(_GZIP) or is_head(head)


def is_head(head: bytes) -> bool:
    """Returns whether this is the beginning of a record: a length and its masked CRC-32C."""
    if len(head) < HEAD.size:
        return False
    length, checksum = HEAD.unpack_from(head)
    crc = 0xFFFFFFFF
    for byte in length:
        crc = crc >> 8 ^ _table()[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    # Source: https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details.
    return bool(checksum == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


@functools.cache
def _table() -> tuple[int, ...]:
    found = [*range(256)]
    for _ in range(8):
        found = [each >> 1 ^ (0x82F63B78 if each & 1 else 0) for each in found]
    return tuple(found)


def _records(path: Path) -> Any:
    """Yields the records; Beam tells by a file's name whether it is gzipped."""
    is_gzipped = path.name.endswith(".gz")
    with open_regular(path) as raw:
        file: Any = gzip.GzipFile(fileobj=raw) if is_gzipped else raw
        for number in itertools.count():
            try:
                head = file.read(HEAD.size)
                if not head:
                    return
                if len(head) == HEAD.size and not is_head(head):
                    _refuse_head(path, number, head)
                length = _LENGTH.unpack_from(head)[0] + _FOOT if len(head) == HEAD.size else 0
                # A file may tell any length.
                record = file.read(length) if length else b""
            except gzip.BadGzipFile:
                _refuse(path, "is not gzipped, as its name tells", "a gzipped file", "rename it, or write it again")
            except (EOFError, zlib.error):
                length, record = 1, b""
            if len(record) < max(length, _FOOT):
                _refuse(path, f"ends within its record {number:,}", "a whole TFRecord file", "write it again")
            yield record[:-_FOOT]


def _refuse_head(path: Path, number: int, head: bytes) -> NoReturn:
    if number:
        _refuse(path, f"is damaged after {number:,} records", "a whole TFRecord file", "write it again")
    if head.startswith(_GZIP):
        todo = "rename it, as Beam tells by the name whether a file is gzipped"
        _refuse(path, "is gzipped, and its name does not end in .gz", "a name that ends in .gz", todo)
    _refuse(path, "is no TFRecord file", "a file of serialized tf.Examples, plain or gzipped", "leave it out")


def _refuse(path: Path, what: str, expected: str, todo: str) -> NoReturn:
    raise DamagedDataError(one_line(f"{path} {what}"), expected=expected, todo=todo)


def _refuse_records(path: Path, why: str) -> NoReturn:
    todo = "write them as tf.train.Example(…).SerializeToString()"
    raise DataError(one_line(f"the records of {path} are no tf.Examples: {why}"), expected="tf.Examples", todo=todo)


def _to_file(path: Path, rows: list[dict[str, Cell]], kinds: dict[str, str], is_whole: bool) -> TableFile:
    names = tuple(sorted(kinds))
    cells: list[Sequence[Cell]] = [[row.get(name, "") for name in names] for row in rows]
    return TableFile(path, names, cells, [*range(len(rows))], is_whole, {name: kinds[name] for name in names}, UNIT)


def _features(path: Path, number: int, record: bytes, only: str = "") -> Iterator[tuple[str, str, Cell]]:
    """Yields the name, the kind and the cell of each feature of a record, or of one of them."""
    from google.protobuf.message import DecodeError

    try:
        example = _messages()["Example"].FromString(record)
    except DecodeError:
        _refuse_records(path, f"record {number:,} is something else")
    if example.HasField("feature_lists"):
        _refuse_records(path, f"record {number:,} is a SequenceExample")
    for feature in example.features.feature:
        name = feature.key
        if not only or name == only:
            yield (name, *_read_feature(feature.value))


def _read_feature(value: bytes) -> tuple[str, Cell]:
    """Returns the kind and the cell of a serialized Feature."""
    if not value:
        return EMPTY, ""
    # One number or short word, as most features are, is read in a tenth of protobuf's time: the tag of its list, the
    # length of that, the tag of the value, or packed values, and the length of those.
    head, size = value[:3], len(value)
    if 4 < size < _SHORT and value[1] == size - 2 and value[3] == size - 4:
        if head[0] == 0x0A and head[2] == 0x0A:
            return BYTES, to_text(value[4:])
        if head[0] == 0x12 and head[2] == 0x0A and size == 8:
            return FLOAT, shortest(_FLOAT.unpack_from(value, 4)[0])
        if head[0] == 0x1A and head[2] == 0x0A and size == 5 and value[4] < _SHORT:
            return INT, str(value[4])
    feature = _messages()["Feature"].FromString(value)
    if numbers := feature.int64_list.value:
        return INT, to_cell([*map(str, numbers)])
    if floats := feature.float_list.value:
        return FLOAT, to_cell([*map(shortest, floats)])
    texts = feature.bytes_list.value
    return BYTES if texts else EMPTY, to_cell([*map(to_text, texts)])


@functools.cache
def _messages() -> Mapping[str, Any]:
    """Returns tf.train's Example and Feature, made as protoc would: TensorFlow's own take seconds to import."""
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.protobuf.internal import builder

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="tfx_estimator/example.proto", package="tfx_estimator")
    messages = {
        "Example": (("features", "Features"), ("feature_lists", field.TYPE_BYTES)),
        # The entries of a map.
        "Features": (("feature", "*Entry"),),
        "Entry": (("key", field.TYPE_STRING), ("value", field.TYPE_BYTES)),
        "Feature": (("bytes_list", "Bytes"), ("float_list", "Floats"), ("int64_list", "Ints")),
        "Bytes": (("value", -field.TYPE_BYTES),),
        "Floats": (("value", -field.TYPE_FLOAT),),
        "Ints": (("value", -field.TYPE_INT64),),
    }
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for number, (key, kind) in enumerate(fields, 1):
            is_many = kind.startswith("*") if isinstance(kind, str) else kind < 0
            made = message.field.add(name=key, number=number)
            made.label = field.LABEL_REPEATED if is_many else field.LABEL_OPTIONAL
            if isinstance(kind, str):
                made.type, made.type_name = field.TYPE_MESSAGE, f".tfx_estimator.{kind.lstrip('*')}"
            else:
                made.type = abs(kind)
    pool = descriptor_pool.Default()
    classes: dict[str, Any] = {}
    pool.AddSerializedFile(file.SerializeToString())
    described = pool.FindFileByName(file.name)
    builder.BuildMessageAndEnumDescriptors(described, classes)
    builder.BuildTopDescriptorsAndMessages(described, "tfx_estimator.example", classes)
    return classes
