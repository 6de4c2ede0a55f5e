"""The process with Keras 3: builds the network, writes its model, weights and `training.py`, and tests them.

No import here may need Keras 2: `tf.keras` is Keras 3.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.bridge.keras3.optimizers import NAME, STEP_PLACE
from tfx_estimator.model_fn.bridge.keras3.writing import Training, source_of
from tfx_estimator.model_fn.bridge.optimizers import ROWS
from tfx_estimator.model_fn.bridge.placing import Places, place, plain
from tfx_estimator.model_fn.bridge.session import LOGITS, Answer, Batch
from tfx_estimator.model_fn.bridge.tensors import STEP, WEIGHT, Placed, Reader, write_arrays
from tfx_estimator.model_fn.bridge.trial import compare_answers, compare_steps
from tfx_estimator.model_fn.bridge.written import WEIGHTS
from tfx_estimator.model_fn.user_models.keras_model import select_inputs
from tfx_estimator.pipeline.base.errors import TfxEstimatorError, UserCodeError
from tfx_estimator.pipeline.base.text import first_line
from tfx_estimator.pipeline.convert.keras3 import networks
from tfx_estimator.pipeline.user_source import loader
from tfx_estimator.pipeline.user_source.frames import user_lines
from tfx_estimator.pipeline.user_source.modules import Module, is_installed, is_project

_BUILT_IN = "tfx_estimator.model_fn.networks"

Features = Mapping[str, np.ndarray]


def convert(request: Mapping[str, Any], batches: Iterable[Batch], answers: Iterable[Answer]) -> dict[str, Any]:
    """Writes and measures the model and its source; returns fields of a `Proof`, places, and folders of modules."""
    keras.utils.set_random_seed(request["seed"])
    folder, example, reader = request["folder"], request["example"], Reader(request["checkpoint"])
    built, path = _build(request, example), os.path.join(folder, "model.keras")
    own = _own_layers(built)
    try:
        built.save(path)
        # The loaded model has the variable names that `training.py` will find.
        model = keras.models.load_model(path, custom_objects={each.__name__: each for each in own}, compile=False)
    except Exception as error:  # Keras raises many types for a layer that cannot be saved
        raise _refusal(error, "Keras 3 cannot save the network and load it again") from error
    del built
    training = _completed(request["training"], model, example, own, request["named"])
    placed = place(request["tensors"], _places(model, training.options), request["guide"])
    variables = {each.path: each for each in model.weights}
    for each in placed:
        if each.tensor.kind == WEIGHT:
            value = request["served"].get(each.tensor.name)
            variables[each.place].assign(reader.get_tensor(each.tensor.name) if value is None else value)
    model.save(path)
    with open(os.path.join(folder, "training.py"), "w", encoding="utf-8") as file:
        file.write(source_of(training))
    held = [each for each in placed if each.place]
    write_arrays(os.path.join(folder, WEIGHTS), ((each.place, reader.get_tensor(each.tensor.name)) for each in held))
    measured = compare_answers(answers, functools.partial(_answer, model))
    # `training.py` loads its own.
    del model, variables
    measured |= _compare_steps(_import(os.path.join(folder, "training.py")), held, reader, request["trained"], batches)
    return {
        **measured,
        "places": {each.tensor.name: (each.place, each.rule) for each in placed},
        "modules": _homes(own),
    }


def _completed(training: Training, model: Any, example: Features, own: set[type], named: Mapping[str, Any]) -> Training:
    """Returns the content of the source with what the model tells."""
    given = _chosen(model, example)
    is_alone = not isinstance(given, dict)
    inputs = {name: each for name, each in example.items() if each is given} if is_alone else given
    norms = [each for each in model._flatten_layers() if isinstance(each, keras.layers.BatchNormalization)]
    synchronized = named.get("synchronized") or all(each.synchronized for each in norms)
    return dataclasses.replace(
        training,
        normalised_parts=1 if synchronized else training.normalised_parts,
        inputs={name: _words(each) for name, each in inputs.items()},
        alone=is_alone,
        own_layers=sorted((_plain(each.__module__), each.__name__) for each in own),
        sparse=_is_sparse(model, given),
        normalises=any(each.input_spec.ndim == 4 for each in norms),
        own_losses=bool(model.losses),
    )


def _places(model: Any, options: Mapping[str, Any]) -> Places:
    """Returns the places of a model, and of the optimizer that it will have."""
    trained, others = ([each.path for each in some] for some in (model.trainable_weights, model.non_trainable_weights))
    shapes = {each.path: list(each.shape) for each in model.weights}
    # A network's own name may come first in them, as its scope may in the checkpoint.
    inner = collections.Counter(plain(path.partition("/")[2]) for path in shapes)
    short = {name: path for path in shapes if inner[name := plain(path.partition("/")[2])] == 1}
    slots = {
        (path, each.ours): (f"{NAME}/{plain(path)}_{each.keras3}", shapes[path])
        for path in trained
        for each in ROWS[options["name"]].slots
    }
    # TensorFlow's RMSProp has a momentum slot even without momentum, and overwrites it in each step.
    if options["name"] == "rmsprop" and not options["momentum"]:
        slots |= {(path, "momentum"): ("", shapes[path]) for path in trained}
    repeated = sorted(path for path, count in collections.Counter([*trained, *others]).items() if count > 1)
    aliases = {**short, **{plain(path): path for path in shapes}}
    return Places(shapes, slots, STEP_PLACE, trained, others, [*shapes, STEP_PLACE], repeated, aliases)


def _build(request: Mapping[str, Any], batch: Features) -> Any:
    """Calls the network's function, and the network with an example."""
    module_name, _, name = request["target"].partition(":")
    try:
        if module_name == _BUILT_IN:
            return getattr(networks, name)(*request["given"], shape=batch["image"].shape[1:], **request["named"])
        function = getattr(importlib.import_module(loader.import_name(module_name)), name)
        network = function(*request["given"], **request["named"])
        if not isinstance(network, keras.Model):
            raise UserCodeError(
                f"trainer.model: {request['target']!r} returned {type(network).__name__}, not a model of Keras 3",
                expected="a function that creates its layers by tf.keras",
                todo="use tf.keras.… instead of imports from Keras; or convert to keras2",
            )
        network(_chosen(network, {key: each[:1] for key, each in batch.items()}), training=False)
        return network
    except TfxEstimatorError:
        raise
    except Exception as error:  # the user's code may raise any type
        raise _refusal(error, f"trainer.model: Keras 3 cannot build {request['target']!r}") from error


def _refusal(error: Exception, what: str) -> UserCodeError:
    """Returns the error with the last line of the user's code in its traceback."""
    lines = "".join(user_lines(error)[-1:]).rstrip()
    return UserCodeError(
        f"{what}: {type(error).__name__}: {first_line(error)}" + (f"\n{lines}" if lines else ""),
        expected="only API of tf.keras that Keras 2 and Keras 3 share",
        todo="change that line; or convert to keras2",
    )


def _chosen(model: Any, features: Features) -> Any:
    """Selects a model's inputs among the features: see `keras_model.inputs_of`."""
    names = None
    if not isinstance(model, keras.Sequential) and getattr(model, "_inputs_struct", None) is not None:
        names = sorted(model.input) if isinstance(model.input, dict) else [each.name for each in model.inputs]
    return select_inputs(model, features, names)


def _words(feature: np.ndarray) -> str:
    return f"{feature.dtype} [batch{''.join(f', {size}' for size in feature.shape[1:])}]"


def _own_layers(model: Any) -> set[type]:
    """Returns the layer classes that are not Keras's."""
    kinds = {type(each) for each in (model, *model._flatten_layers())}
    return {each for each in kinds if not each.__module__.startswith("keras.")}


def _plain(module: str) -> str:
    """Returns a module's plain name, by which `training.py` imports it from its folder."""
    return module.removeprefix(f"{loader.PACKAGE}.")


def _homes(own: set[type]) -> dict[str, str]:
    """Returns the user's modules of layers, with the folder that each is imported from."""
    files = {_plain(each.__module__): Path(inspect.getfile(each)).resolve() for each in own}
    return {
        name: str((file.parent if file.stem == "__init__" else file).parents[name.count(".")])
        for name, file in files.items()
        if not is_installed(Module(name, file)) and not is_project(Module(name, file))
    }


def _is_sparse(model: Any, inputs: Any) -> bool:
    """True if there are IndexedSlices gradients."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(inputs, training=False))
    found = tape.gradient(loss, [each.value for each in model.trainable_variables])
    return any(isinstance(each, tf.IndexedSlices) for each in found)


def _import(path: str) -> Any:
    # No __pycache__ in the user's folder.
    sys.dont_write_bytecode = True
    # This loader finds the user's modules by plain names, like imports from the folder that they are copied to.
    spec = importlib.util.spec_from_file_location("training", path, loader=loader.Loader("training", path))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _answer(model: Any, batch: Batch, name: str) -> np.ndarray:
    outputs = model(_chosen(model, batch.features), training=False)
    return np.asarray(outputs if name == LOGITS else tf.nn.softmax(outputs))


def _compare_steps(
    module: Any, placed: Sequence[Placed], reader: Reader, trained: Any, batches: Iterable[Batch]
) -> dict[str, Any]:
    """Compares the model that `training.py` loads and trains."""
    model, optimizer = module.load()
    variables = {each.path: each for each in (*model.weights, *optimizer.variables)}

    def train(batch: Batch) -> Any:
        return module.train_step(model, optimizer, _chosen(model, batch.features), batch.labels)

    held = [each for each in placed if each.tensor.kind != STEP]
    return compare_steps(trained, held, reader, train, lambda: batches, variables)
