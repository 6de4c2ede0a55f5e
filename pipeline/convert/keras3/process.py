"""The process with Keras 3: builds the network, writes its model, weights and `training.py`, and tests them.

No import here may need Keras 2: `tf.keras` is Keras 3.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.bridge.differences import difference
from tfx_estimator.model_fn.bridge.keras3.filling import Slots, Weights
from tfx_estimator.model_fn.bridge.keras3.writing import Training, source_of
from tfx_estimator.model_fn.bridge.steps import Trained, compare
from tfx_estimator.pipeline.base.errors import TfxEstimatorError, UserCodeError, to_json
from tfx_estimator.pipeline.base.files import write_json
from tfx_estimator.pipeline.base.text import first_line
from tfx_estimator.pipeline.convert.keras3 import networks
from tfx_estimator.pipeline.user_source import loader
from tfx_estimator.pipeline.user_source.frames import user_lines
from tfx_estimator.pipeline.user_source.modules import Module, is_installed, is_project

_BUILT_IN = "tfx_estimator.model_fn.networks"
_IMAGE = "image"

Features = Mapping[str, np.ndarray]


def main(request_file: str, arrays_file: str, result_file: str) -> None:
    """Converts by a request file and a file of arrays, and writes the result or the error to a third file."""
    with open(request_file, encoding="utf-8") as file:
        request = json.load(file)
    result: dict[str, Any]
    try:
        with np.load(arrays_file) as arrays:
            result = convert(request, arrays)
    except TfxEstimatorError as error:
        result = {"error": to_json(error)}
    write_json(result_file, result)


def convert(request: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Writes the model and its training source into a folder, and measures both.

    Args:
        request: Written by `handing`.
        arrays: `after/STEPS/PLACE`, `rounded/STEPS/PLACE` and `served/PLACE`, `train/NUMBER/NAME` and `labels/NUMBER`,
            `eval/NUMBER/NAME` and `logits/NUMBER`.

    Returns:
        Fields of a `Proof`; `places`: path and rule of each tensor; and `modules`: import folders of the modules of
        custom layers.
    """
    keras.utils.set_random_seed(request["seed"])
    batch = _features(arrays, "train/0/")
    folder = request["folder"]
    with np.load(request["weights"]) as stored:
        now = {place: stored[place] for place in request["places"]}
    built = _build(request, batch)
    filled = Weights.place(built, request["order"], {**now, **_features(arrays, "served/")})
    path = os.path.join(folder, "model.keras")
    own = _own_layers(built)
    try:
        built.save(path)
        # The loaded model has the variable names that `training.py` will find.
        model = keras.models.load_model(path, custom_objects={each.__name__: each for each in own}, compile=False)
    except Exception as error:  # Keras raises many types for a layer that cannot be saved
        raise _refusal(error, "Keras 3 cannot save the network and load it again") from error
    del built
    weights = filled.loaded(model)
    given, alone = _chosen(model, batch), _alone(model, batch)
    inputs = {alone: given} if alone else given
    training = Training(
        step=request["step"],
        options=request["optimizer"],
        train_steps=request["train_steps"],
        classes=request["num_classes"],
        label_smoothing=request["label_smoothing"],
        class_weights=request["class_weights"],
        batch=request["batch"],
        augment=request["augment"],
        normalised_parts=request["normalised_parts"],
        inputs={name: _words(each) for name, each in inputs.items()},
        alone=bool(alone),
        own_layers=sorted((_plain(each.__module__), each.__name__) for each in own),
        sparse=_is_sparse(model, given),
        normalises=any(map(_normalises_images, model._flatten_layers())),
        own_losses=bool(model.losses),
    )
    with open(os.path.join(folder, "training.py"), "w", encoding="utf-8") as file:
        file.write(source_of(training))
    module = _import(os.path.join(folder, "training.py"))
    slots = Slots.place(weights, request["optimizer"], list(now))
    slots.write(os.path.join(folder, "weights.npz"), now, request["step"])
    measured = _compare_answers(model, request, arrays)
    # `training.py` loads its own.
    del model, now
    if request["trained"]:
        measured |= _compare_steps(module, weights, slots, request, arrays)
    return {**measured, "places": {**weights.mapping, **slots.mapping}, "modules": _homes(own)}


def _build(request: Mapping[str, Any], batch: Features) -> Any:
    """Calls the network's function, and the network with an example."""
    module_name, _, name = request["target"].partition(":")
    try:
        if module_name == _BUILT_IN:
            return getattr(networks, name)(*request["given"], shape=batch[_IMAGE].shape[1:], **request["named"])
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


def _features(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}


def _chosen(model: Any, features: Features) -> Any:
    """Selects a model's inputs among the features: see `keras_model.inputs_of`."""
    alone = _alone(model, features)
    if alone:
        return features[alone]
    is_functional = getattr(model, "_inputs_struct", None) is not None
    return {name: features[name] for name in (_names(model) if is_functional else features)}


def _alone(model: Any, features: Features) -> str:
    """Returns the name of a model's only input; empty if it takes a dict."""
    is_sequential = isinstance(model, keras.Sequential)
    if is_sequential or getattr(model, "_inputs_struct", None) is None:
        # A subclassed model may use any of the features.
        if _IMAGE in features and (is_sequential or len(features) == 1):
            return _IMAGE
        return next(iter(features)) if is_sequential and len(features) == 1 else ""
    names = _names(model)
    if len(names) > 1:
        return ""
    return next(name for name in (*names, _IMAGE, *features) if name in features)


def _names(model: Any) -> list[str]:
    return sorted(model.input) if isinstance(model.input, dict) else [each.name for each in model.inputs]


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


def _normalises_images(layer: Any) -> bool:
    return isinstance(layer, keras.layers.BatchNormalization) and layer.input_spec.ndim == 4


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


def _compare_answers(model: Any, request: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Compares the saved model on all evaluation examples."""
    worst, classes = 0.0, 0
    for number in range(request["evaluated"]):
        features = _features(arrays, f"eval/{number}/")
        old = arrays[f"logits/{number}"]
        answer = model(_chosen(model, features), training=False)
        new = np.asarray(answer if request["compared"] == "logits" else tf.nn.softmax(answer))
        worst = max(worst, difference(old, new))
        classes += int((old.argmax(axis=1) != new.argmax(axis=1)).sum())
    return {"logits": worst, "classes": classes}


def _compare_steps(
    module: Any, weights: Weights, slots: Slots, request: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """Compares the model that `training.py` loads and trains."""
    model, optimizer = module.load()
    slots.require_all(optimizer)
    paths = {**dict(zip(weights.places, weights.paths)), **slots.paths}
    found = {each.path: each for each in (*model.weights, *optimizer.variables)}
    variables = {place: found[path] for place, path in paths.items()}

    def train(number: int) -> Any:
        inputs = _chosen(model, _features(arrays, f"train/{number}/"))
        return module.train_step(model, optimizer, inputs, arrays[f"labels/{number}"])

    trained = Trained(**request["trained"])
    with np.load(request["weights"]) as before:
        moved = (
            (count, kind, place, before[paths[place]], arrays[f"after/{at}"], float(arrays[f"rounded/{at}"]))
            for count in sorted({1, len(trained.losses)})
            for kind, places in (("weight", weights.places), ("slot", slots.paths))
            for place in places
            for at in [f"{count}/{place}"]
        )
        return compare(trained, moved, train, range(len(trained.losses)), variables)
