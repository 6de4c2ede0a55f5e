"""JSON as tensors and back, by the rules of TensorFlow Serving's REST API, in its words.

Source: https://www.tensorflow.org/tfx/serving/api_rest.
"""

from __future__ import annotations

import base64
import binascii
import functools
import json
import math
from collections.abc import Mapping
from typing import Any, Union

import numpy as np
import tensorflow as tf

_BASE64 = "b64"
# Of an output whose strings are bytes.
_BYTES = "_bytes"
_SHOWN = 100
# TensorFlow's limit of a tensor's rank.
_MOST_LEVELS = 254
# TensorInfo by the name of an input.
Infos = Mapping[str, Any]


class RequestError(Exception):
    """A request that TensorFlow Serving refuses, in its words.

    Args:
        status: The HTTP status.
    """

    def __init__(self, what: str, status: int = 400) -> None:
        super().__init__(what)
        self.status = status


def parse(body: bytes) -> dict[str, Any]:
    """Parses the body of a request."""
    if not body:
        raise RequestError("JSON Parse error: The document is empty")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        # Of bytes that are no UTF-8 the position has another name.
        place = getattr(error, "pos", getattr(error, "start", 0))
        raise RequestError(f"JSON Parse error: Invalid value. at offset: {place}") from error
    if not isinstance(document, dict):
        raise RequestError(f"JSON Value: {_text(document)} Is not object")
    if not isinstance(document.get("signature_name", ""), str):
        raise RequestError(f"JSON Value: {_text(document)} Key 'signature_name' must be a string value.")
    return document


def to_inputs(document: Mapping[str, Any], infos: Infos) -> tuple[dict[str, tf.Tensor], bool]:
    """Returns a signature's inputs, and whether they were rows: `instances`, else columns: `inputs`."""
    if "instances" in document and "inputs" in document:
        raise RequestError("Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist ")
    if "instances" in document:
        return _of_rows(document["instances"], infos), True
    if "inputs" not in document:
        raise RequestError("Missing 'inputs' or 'instances' key")
    columns = document["inputs"]
    if not isinstance(columns, dict) or _is_bytes(columns):
        if len(infos) > 1:
            raise RequestError(
                "inputs is a plain value/list, but expecting an object as multiple input tensors required as per "
                "tensorinfo_map"
            )
        columns = dict.fromkeys(infos, columns)
    for name in infos:
        if name not in columns:
            raise RequestError(f"Missing named input: {name} in 'inputs' object.")
    inputs = {}
    for name, info in infos.items():
        flat: list[Any] = []
        shape = _shape(columns[name])
        _fill(columns[name], shape, tf.as_dtype(info.dtype), flat)
        inputs[name] = _tensor(name, flat, shape, info)
    return inputs, False


def _of_rows(rows: Any, infos: Infos) -> dict[str, tf.Tensor]:
    if not isinstance(rows, list):
        raise RequestError("Excepting 'instances' to be an list/array")
    if not rows:
        raise RequestError("No values in 'instances' array")
    named = _is_object(rows[0])
    if not named and len(infos) > 1:
        raise RequestError(
            "instances is a plain list, but expecting list of objects as multiple input tensors required as per "
            "tensorinfo_map"
        )
    (first, *_) = infos
    shapes: dict[str, list[int]] = {}
    flat: dict[str, list[Any]] = {name: [] for name in infos}
    for number, row in enumerate(rows):
        if named != _is_object(row):
            wanted = "object but got list" if named else "value/list but got object"
            raise RequestError(f"Expecting {wanted} at item {number} of input list")
        values = row if named else {first: row}
        if values.keys() != infos.keys():
            raise RequestError(
                f"Failed to process element: {number} of 'instances' list. JSON object: {_text(row)} keys must be "
                f"equal to: {','.join(sorted(infos))}"
            )
        for name, value in values.items():
            try:
                shape = _shape(value)
                if shape != shapes.setdefault(name, shape):
                    raise RequestError(f"Expecting shape {_listed(shapes[name])} but got: {_listed(shape)}")
                _fill(value, shape, tf.as_dtype(infos[name].dtype), flat[name])
            except RequestError as error:
                key = f" key: {name}" if named else ""
                where = f"Failed to process element: {number}{key} of 'instances' list. Error: "
                raise RequestError(f"{where}INVALID_ARGUMENT: {error}") from error
    return {name: _tensor(name, flat[name], [len(rows), *shapes[name]], info) for name, info in infos.items()}


def _tensor(name: str, flat: list[Any], shape: list[int], info: Any) -> tf.Tensor:
    """Returns checked values as the tensor of an input."""
    dtype, taken = tf.as_dtype(info.dtype), tf.TensorShape(info.tensor_shape)
    if not taken.is_compatible_with(shape):
        raise RequestError(f"Input {name} has shape {_listed(shape)}, expected {taken}")
    kind = object if dtype == tf.string else dtype.as_numpy_dtype
    held = np.empty(len(flat), kind)
    try:
        held[:] = flat
    except OverflowError as error:
        raise RequestError(f"Input {name} has a number that is too large for {dtype.name}") from error
    return tf.constant(held.reshape(shape), dtype)


def _fill(value: Any, shape: list[int], dtype: tf.DType, flat: list[Any], level: int = 0) -> None:
    if not isinstance(value, list):
        if level != len(shape):
            raise RequestError(
                f"JSON Value: {_text(value)} found at incorrect level: {level + 1} in the JSON DOM. Expected at "
                f"level: {len(shape)}"
            )
        flat.append(_scalar(value, dtype))
        return
    if level >= len(shape):
        raise RequestError(f"Encountered list at unexpected level: {level} expected < {len(shape)}")
    if len(value) != shape[level]:
        raise RequestError(
            f"Encountered list at unexpected size: {len(value)} at level: {level} expected size: {shape[level]}"
        )
    for each in value:
        _fill(each, shape, dtype, flat, level + 1)


def _scalar(value: Any, dtype: tf.DType) -> Union[bool, int, float, bytes]:
    if dtype == tf.string and isinstance(value, dict):
        if not _is_bytes(value):
            raise RequestError(
                f"JSON Value: {_text(value)} not formatted correctly for base64 data, expected an object of the one "
                f"key '{_BASE64}'"
            )
        try:
            return base64.b64decode(value[_BASE64], validate=True)
        except (binascii.Error, ValueError) as error:
            raise RequestError("Unable to base64 decode") from error
    if dtype == tf.string and isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise RequestError("JSON Parse error: The surrogate pair in string is invalid.") from error
    kinds, least, most = _taken(dtype)
    # NaN is neither less nor more.
    if type(value) in kinds and not (value < least or value > most):
        return value
    raise _type_error(value, dtype)


@functools.cache
def _taken(dtype: tf.DType) -> tuple[tuple[type, ...], Any, Any]:
    """Returns the types of JSON's values that a dtype takes, the least and the greatest value."""
    if dtype == tf.bool:
        return (bool,), False, True
    if dtype.is_integer:
        return (int,), dtype.min, dtype.max
    return ((int, float) if dtype.is_floating else ()), -math.inf, math.inf


def _shape(value: Any) -> list[int]:
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        if len(shape) > _MOST_LEVELS:
            raise RequestError(f"Encountered list at unexpected level: {_MOST_LEVELS}")
        value = value[0] if value else None
    return shape


def _is_bytes(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {_BASE64} and isinstance(value[_BASE64], str)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and not _is_bytes(value)


def _type_error(value: Any, dtype: tf.DType) -> RequestError:
    kinds = {bool: "Boolean", str: "String", dict: "Object", list: "Array", type(None): "Null"}
    kind = kinds.get(type(value), "Number")
    return RequestError(f"JSON Value: {_text(value)} Type: {kind} is not of expected type: {dtype.name}")


def _text(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _listed(shape: list[int]) -> str:
    return f"[{','.join(map(str, shape))}]"


def to_answer(outputs: Mapping[str, np.ndarray], is_rows: bool) -> dict[str, Any]:
    """Returns the answer to a prediction: `predictions` of rows, else `outputs`; a single output has no name."""
    columns = {name: to_json(values, name.endswith(_BYTES)) for name, values in sorted(outputs.items())}
    if not is_rows:
        return {"outputs": columns if len(columns) > 1 else next(iter(columns.values()))}
    size = -1
    for name, values in sorted(outputs.items()):
        if not values.ndim:
            raise RequestError(f"Tensor name: {name} has no shape information ")
        if size not in (-1, len(values)):
            raise RequestError(f"Tensor name: {name} has inconsistent batch size: {len(values)} expecting: {size}")
        size = len(values)
    if len(columns) == 1:
        return {"predictions": next(iter(columns.values()))}
    return {"predictions": [dict(zip(columns, row)) for row in zip(*columns.values())]}


def to_json(values: np.ndarray, as_bytes: bool = False) -> Any:
    """Returns a tensor as lists; strings as text, or as base64."""
    if values.dtype == object:
        texts = [
            {_BASE64: base64.b64encode(each).decode()} if as_bytes else each.decode("utf-8", "replace")
            for each in values.reshape(-1).tolist()
        ]
        held = np.empty(values.size, object)
        held[:] = texts
        return held.reshape(values.shape).tolist()
    # The shortest number that is the same float32, as TensorFlow Serving writes it.
    if values.dtype in (np.float16, np.float32):
        return np.array([float(str(each)) for each in values.reshape(-1)]).reshape(values.shape).tolist()
    return values.tolist()


def to_examples(document: Mapping[str, Any]) -> list[bytes]:
    """Returns the serialized tf.Examples of `classify` or `regress`, each with the features of `context`."""
    rows = document.get("examples")
    if "examples" not in document:
        raise RequestError("When method is classify, key 'examples' is expected and was not found")
    if not isinstance(rows, list):
        raise RequestError("Expecting 'examples' value to be an list/array")
    if not rows:
        raise RequestError("'examples' is an empty array")
    context = _example(document.get("context", {}))
    examples = []
    for row in rows:
        example = _example(row)
        for name, feature in context.features.feature.items():
            if name not in example.features.feature:
                example.features.feature[name].CopyFrom(feature)
        examples.append(example.SerializeToString())
    return examples


def _example(row: Any) -> tf.train.Example:
    if not isinstance(row, dict):
        raise RequestError(f"Example must be JSON object but got JSON {type(row).__name__}")
    example = tf.train.Example()
    for name, value in row.items():
        feature = example.features.feature[name]
        for each in value if isinstance(value, list) else [value]:
            if _is_bytes(each) or isinstance(each, str):
                kind, one = "bytes_list", _scalar(each, tf.string)
            elif isinstance(each, (bool, int)):
                kind, one = "int64_list", int(each)
            elif isinstance(each, float):
                kind, one = "float_list", each
            else:
                raise RequestError(f"Feature: {name} has element with unexpected JSON type: {type(each).__name__}")
            if feature.WhichOneof("kind") not in (None, kind):
                expected = str(feature.WhichOneof("kind")).partition("_")[0]
                raise RequestError(f"Unexpected element type in feature: {name} expecting type: {expected}")
            try:
                getattr(feature, kind).value.append(one)
            except (ValueError, OverflowError) as error:
                raise RequestError(f"Feature: {name} has uint64 element. Only int64 is supported.") from error
    return example
