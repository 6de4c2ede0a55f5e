"""The executor of Transform."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf
from tfx.components.transform import executor, labels

from tfx_estimator.components.inventory import reads_whole
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.user_source import loader

_TRIES = 4


class Executor(executor.Executor):
    """TFX's, with a preprocessing_fn whose result is looked at, and folders that a failing store renames after all."""

    @reads_whole
    def Do(self, *args: Any, **kwargs: Any) -> None:
        """See `executor.Executor.Do`."""
        with renamed_again():
            super().Do(*args, **kwargs)

    def _GetPreprocessingFn(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Callable[..., Any]:  # noqa: N802  TFX's name
        if dotted := inputs.get(labels.PREPROCESSING_FN):
            inputs = {**inputs, labels.PREPROCESSING_FN: loader.import_name(dotted)}
        return checked(super()._GetPreprocessingFn(inputs, outputs))


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a preprocessing_fn refuse to return what TensorFlow Transform cannot take."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        returned = function(*args, **kwargs)
        if wrong := _wrong(returned):
            raise UserCodeError(
                f"the preprocessing_fn returned {wrong}\n{_place(function)}",
                expected="a dict of tensors, by the name of the feature",
                todo='return the features and the label: `return {"image": …, "label": inputs["label"]}`',
            )
        return returned

    return call


def _wrong(returned: Any) -> str:
    """What is no dict of tensors, in words."""
    if not isinstance(returned, dict):
        return f"{returned!r:.80}"
    for name, value in returned.items():
        if not isinstance(name, str):
            return f"a dict with the key {name!r:.80}"
        if not tf.is_tensor(value):
            return f"{value!r:.80} for {name!r}"
    return "" if returned else "an empty dict"


def _place(function: Callable[..., Any]) -> str:
    """Where it is, as a traceback would say it."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    return f'  File "{code.co_filename}", line {code.co_firstlineno}, in {code.co_name}' if code else repr(function)


@contextlib.contextmanager
def renamed_again() -> Iterator[None]:
    """Has TensorFlow try again, in this process, where it took a folder for a file.

    It asks whether there is a folder first, and takes any error for a no: then it renames the object of that name,
    which is not there, and does not try again. TensorFlow Transform publishes its graph by two such renames.

    Source: `GcsFileSystem::RenameFile` of TensorFlow 2.15.
    """
    rename = tf.io.gfile.rename

    def again(src: str, dst: str, overwrite: bool = False) -> None:
        for tries_left in reversed(range(_TRIES)):
            try:
                rename(src, dst, overwrite)
                return
            except tf.errors.NotFoundError:
                if not tries_left or not tf.io.gfile.isdir(src):
                    raise

    tf.io.gfile.rename = again
    try:
        yield
    finally:
        tf.io.gfile.rename = rename
