"""The executor of Transform."""

from __future__ import annotations

import contextlib
import functools
import gzip
import inspect
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf
from absl import flags
from tfx.components.transform import executor, labels
from tfx.dsl.io import fileio
from tfx.types import standard_artifacts, standard_component_specs
from tfx.utils import io_utils

from tfx_estimator.components import read_files
from tfx_estimator.components.execution import Artifacts
from tfx_estimator.components.inventory import checks_inputs
from tfx_estimator.components.transform.frozen import Frozen
from tfx_estimator.model_fn.bridge import tf1
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.user_source import loader, opened
from tfx_estimator.pipeline.user_source.frames import is_users_module

# Entries of custom_config: the preprocessing_fn's modules are written for TensorFlow 1; the transformed examples are
# not compressed; the fields of `Frozen`.
TF1, PLAIN, FROZEN = "tf1", "plain", "frozen"
_TRIES = 4
_GZIP = ".gz"
# A flag of tfx_bsl.
_BY_BYTES = "tfxio_use_byte_size_batching"


class Executor(executor.Executor):
    """TFX's executor, which checks the preprocessing_fn's result, batches by size, and retries a store's renames."""

    @checks_inputs
    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
        """See `executor.Executor.Do`."""
        own = read_files.folders_of(input_dict, output_dict)
        config = json.loads(exec_properties.get(labels.CUSTOM_CONFIG) or "null") or {}
        with contextlib.ExitStack() as stack:
            if FROZEN in config:
                (schema,) = input_dict[standard_component_specs.SCHEMA_KEY]
                frozen = Frozen(**config[FROZEN])
                frozen.check(io_utils.SchemaReader().read(io_utils.get_only_uri_in_dir(schema.uri)))
                stack.enter_context(frozen.applied())
            stack.enter_context(retrying_renames())
            stack.enter_context(batches_of_equal_bytes())
            outputs = stack.enter_context(one_output(input_dict, output_dict))
            opened.noting(super().Do, input_dict, outputs, exec_properties, own=own)
        if config.get(PLAIN):
            for examples in output_dict[standard_component_specs.TRANSFORMED_EXAMPLES_KEY]:
                _decompress(examples.uri)
        (transform_graph,) = output_dict[standard_component_specs.TRANSFORM_GRAPH_KEY]
        read_files.keep(transform_graph, opened.noted())

    def _GetPreprocessingFn(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Callable[..., Any]:  # noqa: N802  TFX's name
        if (json.loads(inputs.get(labels.CUSTOM_CONFIG) or "null") or {}).get(TF1):
            tf1.show(is_users_module)
        if dotted := inputs.get(labels.PREPROCESSING_FN):
            inputs = {**inputs, labels.PREPROCESSING_FN: loader.import_name(dotted)}
        return checked(super()._GetPreprocessingFn(inputs, outputs))


@contextlib.contextmanager
def one_output(input_dict: Artifacts, output_dict: Artifacts) -> Iterator[Artifacts]:
    """Gives TFX's executor an output for each input, of a day; then puts their files into the one that there is."""
    key, days = standard_component_specs.TRANSFORMED_EXAMPLES_KEY, input_dict[standard_component_specs.EXAMPLES_KEY]
    if len(days) == 1 or key not in output_dict:
        yield output_dict
        return
    (examples,) = output_dict[key]
    outputs = []
    for number in range(len(days)):
        outputs.append(standard_artifacts.Examples())
        outputs[-1].uri = os.path.join(examples.uri, f"day-{number}")
    yield {**output_dict, key: outputs}
    for number, output in enumerate(outputs):
        for path in fileio.glob(os.path.join(output.uri, "*", "*")):
            split, name = os.path.split(os.path.relpath(path, output.uri))
            fileio.makedirs(os.path.join(examples.uri, split))
            fileio.rename(path, os.path.join(examples.uri, split, f"{number:04}-{name}"))
        fileio.rmtree(output.uri)
    examples.split_names = outputs[0].split_names


def _decompress(folder: str) -> None:
    """Replaces the gzipped files of each split; TFX's Transform can write no others."""
    for path in fileio.glob(os.path.join(folder, "*", f"*{_GZIP}")):
        plain = path.removesuffix(_GZIP)
        with fileio.open(path, "rb") as packed, gzip.open(packed) as file, fileio.open(plain, "wb") as written:
            shutil.copyfileobj(file, written)
        fileio.remove(path)


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a preprocessing_fn to raise an error for a result that TensorFlow Transform rejects."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        returned = function(*args, **kwargs)
        if wrong := _wrong(returned):
            raise UserCodeError(
                f"the preprocessing_fn returned {wrong}\n{_place(function)}",
                expected="a dict of tensors by feature name",
                todo='return the features and the label: `return {"image": …, "label": inputs["label"]}`',
            )
        return returned

    return call


def _wrong(returned: Any) -> str:
    """Describes a result that is not a dict of tensors; empty if it is one."""
    if not isinstance(returned, dict):
        return f"{returned!r:.80}"
    for name, value in returned.items():
        if not isinstance(name, str):
            return f"a dict with the key {name!r:.80}"
        if not tf.is_tensor(value):
            return f"{value!r:.80} for {name!r}"
    return "" if returned else "an empty dict"


def _place(function: Callable[..., Any]) -> str:
    """Returns the function's place in the format of a traceback."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    return f'  File "{code.co_filename}", line {code.co_firstlineno}, in {code.co_name}' if code else repr(function)


@contextlib.contextmanager
def batches_of_equal_bytes() -> Iterator[None]:
    """Batches the examples by their size; by default Beam chooses by the time that the previous batches took.

    The analyzers add numbers of a batch, then the batches: rounded differently, moments differ between two runs.
    """
    flags.FLAGS.set_default(_BY_BYTES, True)
    try:
        yield
    finally:
        flags.FLAGS.set_default(_BY_BYTES, False)


@contextlib.contextmanager
def retrying_renames() -> Iterator[None]:
    """Retries TensorFlow's renames of a folder in a bucket, in this process.

    TensorFlow first checks if the source is a folder, and treats any error as a no: it then renames the object of that
    name, which does not exist, and does not retry. TensorFlow Transform publishes its graph by two such renames.

    Source: `GcsFileSystem::RenameFile` of TensorFlow 2.15.
    """
    rename = tf.io.gfile.rename

    def retry(src: str, dst: str, overwrite: bool = False) -> None:
        for tries_left in reversed(range(_TRIES)):
            try:
                rename(src, dst, overwrite)
                return
            except tf.errors.NotFoundError:
                if not tries_left or not tf.io.gfile.isdir(src):
                    raise

    tf.io.gfile.rename = retry
    try:
        yield
    finally:
        tf.io.gfile.rename = rename
