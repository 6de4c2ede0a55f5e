"""What to write in place of what code of TensorFlow 1, or of another input, fails by most often."""

from __future__ import annotations

import ast
import json
import linecache
import re
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

from tfx_estimator.pipeline.user_source.frames import is_users

_NO_NAME = re.compile(
    r"module '(?:tensorflow|(?:tf_)?keras|tensorflow_estimator)\b(?:\.[\w.]*)?' has no attribute '(\w+)'"
)
_MODULE = re.compile(r"module '(?:[\w.]*\.)?(\w+)'")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_TEXT = re.compile(r"""(["'])(?:\\.|(?!\1).)*\1""")
# What reads an entry of a dict, or all of them, after its name.
_READS = re.compile(r"\s*(?:\[|\.(?:get|items|keys|values|pop|copy)\b)")
# What TensorFlow, Keras and Python say of a dict in the place of a tensor.
_WAS_A_DICT = re.compile(r"'dict'|Failed to convert '\{|Expected any non-tensor type")


def what_to_write(error: BaseException, text: str) -> str:
    """Returns what to write instead; empty where that is not known.

    Args:
        error: That the user's code raised, with its traceback.
        text: Of it, or of the error that it wraps.
    """
    return _of_tensorflow_1(text) if _NO_NAME.search(text) else _of_a_dict(error, text)


def _of_tensorflow_1(text: str) -> str:
    if not (found := _NO_NAME.search(text)) or not (module := _MODULE.search(text)):
        return ""
    import tensorflow as tf

    # By the last name of its module: TensorFlow's own lie in packages of many names.
    path = [*([] if module[1] == "tensorflow" else [module[1]]), found[1]]
    holder: Any = tf.compat.v1
    for name in path:
        holder = getattr(holder, name, None)
    if holder is None:
        return ""
    name = ".".join(path)
    return f"write `tf.compat.v1.{name}` for `tf.{name}`, which is a name of TensorFlow 1"


def _of_a_dict(error: BaseException, text: str) -> str:
    """Of the dicts in the user's innermost statement: features that are taken for a tensor, or absent entries."""
    absent = error.args[0] if isinstance(error, KeyError) and len(error.args) == 1 else None
    for name, value, after in _dicts(error):
        from tfx_estimator.components.trainer.estimator.recorded_params import RecordedParams

        reads = _READS.match(after)
        if isinstance(value, RecordedParams):
            if isinstance(absent, str) and re.match(rf"\[\s*['\"]{re.escape(absent)}['\"]\s*\]", after):
                return f"set `trainer.params: {{{absent}: …}}` in the declaration, which `{name}` is made of"
        elif _is_of_tensors(value) and (
            not reads and _WAS_A_DICT.search(text) if absent is None else reads and absent not in value
        ):
            return f"write `{name}[{json.dumps(next(iter(value)))}]`: `{name}` is a dict of {', '.join(value)}"
    return ""


def _dicts(error: BaseException) -> Iterator[tuple[str, Mapping[Any, Any], str]]:
    """Names of dicts in the statement, each with what follows it there."""
    frames = [each for each in traceback.walk_tb(error.__traceback__) if is_users(each[0].f_code.co_filename)]
    if not frames:
        return
    frame, number = frames[-1]
    statement = _statement(linecache.getlines(frame.f_code.co_filename), number)
    if statement.split()[:1] in (["raise"], ["assert"]):
        return
    for found in _NAME.finditer(_TEXT.sub(lambda quoted: "." * len(quoted[0]), statement)):
        if isinstance(value := frame.f_locals.get(found[0]), Mapping):
            yield found[0], value, statement[found.end() :].lstrip(" ")


def _statement(lines: list[str], number: int) -> str:
    """The statement at a line, up to its body if it has one: a call may have an argument on each line."""
    try:
        found = [each for each in ast.walk(ast.parse("".join(lines))) if isinstance(each, ast.stmt)]
    except SyntaxError:  # edited since it was imported
        return ""
    around = [each for each in found if each.lineno <= number <= (each.end_lineno or 0)]
    if not around:
        return ""
    inner = max(around, key=lambda each: each.lineno)
    body = getattr(inner, "body", None)
    end = body[0].lineno - 1 if body else inner.end_lineno or number
    return "".join(lines[inner.lineno - 1 : max(end, number)])


def _is_of_tensors(value: Mapping[Any, Any]) -> bool:
    import tensorflow as tf

    return bool(value) and all(isinstance(key, str) and tf.is_tensor(each) for key, each in value.items())
