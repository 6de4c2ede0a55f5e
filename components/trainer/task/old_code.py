"""What to write in place of what code of TensorFlow 1, or of another input, fails by most often."""

from __future__ import annotations

import json
import linecache
import re
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

from tfx_estimator.pipeline.user_source.frames import is_users

_NO_NAME = re.compile(r"module '(?:tensorflow|keras|tensorflow_estimator)\b(?:\.[\w.]*)?' has no attribute '(\w+)'")
_MODULE = re.compile(r"module '(?:[\w.]*\.)?(\w+)'")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_TEXT = re.compile(r"""(["'])(?:\\.|(?!\1).)*\1""")
# What reads an entry of a dict, or all of them, after its name.
_READS = re.compile(r"\s*(?:\[|\.(?:get|items|keys|values|pop|copy)\b)")


def what_to_write(error: BaseException, text: str) -> str:
    """Returns what to write instead; empty where that is not known.

    Args:
        error: That the user's code raised, with its traceback.
        text: Of it, or of the error that it wraps.
    """
    return _of_tensorflow_1(text) or _of_a_dict(error)


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


def _of_a_dict(error: BaseException) -> str:
    """Of the dicts that the user's innermost line names: features that are taken for a tensor, or absent entries."""
    absent = error.args[0] if isinstance(error, KeyError) and len(error.args) == 1 else None
    for name, value, after in _dicts(error):
        from tfx_estimator.components.trainer.estimator.recorded_params import RecordedParams

        reads = _READS.match(after)
        if isinstance(value, RecordedParams):
            if isinstance(absent, str) and re.match(rf"\[\s*['\"]{re.escape(absent)}['\"]\s*\]", after):
                return f"set `trainer.params: {{{absent}: …}}` in the declaration, which `{name}` is made of"
        elif _is_of_tensors(value) and (absent is None) != bool(reads) and absent not in value:
            return f"write `{name}[{json.dumps(next(iter(value)))}]`: `{name}` is a dict of {', '.join(value)}"
    return ""


def _dicts(error: BaseException) -> Iterator[tuple[str, Mapping[Any, Any], str]]:
    """Names of dicts on the line, each with what follows it there."""
    frames = [each for each in traceback.walk_tb(error.__traceback__) if is_users(each[0].f_code.co_filename)]
    if not frames:
        return
    frame, number = frames[-1]
    line = linecache.getline(frame.f_code.co_filename, number)
    if line.split()[:1] in (["raise"], ["assert"]):
        return
    for found in _NAME.finditer(_TEXT.sub(lambda quoted: "." * len(quoted[0]), line)):
        if isinstance(value := frame.f_locals.get(found[0]), Mapping):
            yield found[0], value, line[found.end() :].lstrip(" ")


def _is_of_tensors(value: Mapping[Any, Any]) -> bool:
    import tensorflow as tf

    return bool(value) and all(isinstance(key, str) and tf.is_tensor(each) for key, each in value.items())
