"""The process of Keras 3: builds the network, writes its file, its weights and `training.py`, and tries that out.

Nothing that is imported here may need Keras 2: `tf.keras` is Keras 3.
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

from tfx_estimator.pipeline.base.errors import TfxEstimatorError, UserCodeError, to_json
from tfx_estimator.pipeline.base.files import write_json
from tfx_estimator.pipeline.base.text import first_line
from tfx_estimator.pipeline.convert.differences import Step, difference
from tfx_estimator.pipeline.convert.keras3 import networks
from tfx_estimator.pipeline.convert.keras3.filling import Slots, Weights
from tfx_estimator.pipeline.convert.keras3.writing import Training, source_of
from tfx_estimator.pipeline.user_source import loader
from tfx_estimator.pipeline.user_source.frames import user_lines
from tfx_estimator.pipeline.user_source.modules import Module, is_installed, is_project

_BUILT_IN = "tfx_estimator.model_fn.networks"
_IMAGE = "image"
# A difference that is looked into; and a gradient that float32 cannot tell from 0, by the largest of the network.
_NOTICED, _ROUNDING = 1e-6, 1e-6

Features = Mapping[str, np.ndarray]


def main(asked_file: str, arrays_file: str, told_file: str) -> None:
    """Does what one file asks for, with the arrays of another, and writes what came of it into a third."""
    with open(asked_file, encoding="utf-8") as file:
        asked = json.load(file)
    told: dict[str, Any]
    try:
        with np.load(arrays_file) as arrays:
            told = convert(asked, arrays)
    except TfxEstimatorError as error:
        told = {"error": to_json(error)}
    write_json(told_file, told)


def convert(asked: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Writes the model and what trains it into a folder, and measures both.

    Args:
        asked: As `handing` wrote it.
        arrays: `after/PLACE`, `train/NAME` and `labels`, `eval/NUMBER/NAME` and `logits/NUMBER`.

    Returns:
        `logits`, `classes`, `next_step` and `rounding`, as of a `Proof`; `step_parts`: its `parts`; `places`: of each
        tensor, with the rule; and `modules`: of the user's layers, with the folder that they are imported from.
    """
    keras.utils.set_random_seed(asked["seed"])
    batch = _features(arrays, "train/")
    folder = asked["folder"]
    with np.load(asked["weights"]) as stored:
        now = {place: stored[place] for place in asked["places"]}
    built = _build(asked, batch)
    filled = Weights.place(built, asked["order"], now)
    path = os.path.join(folder, "model.keras")
    own = _own_layers(built)
    try:
        built.save(path)
        # What is loaded has the names that `training.py` will find.
        model = keras.models.load_model(path, custom_objects={each.__name__: each for each in own}, compile=False)
    except Exception as error:  # Keras tells in many ways that a layer cannot be saved
        raise _told(error, "Keras 3 cannot save the network and load it again") from error
    del built
    weights = filled.loaded(model)
    given, alone = _chosen(model, batch), _alone(model, batch)
    inputs = {alone: given} if alone else given
    training = Training(
        step=asked["step"],
        options=asked["optimizer"],
        train_steps=asked["train_steps"],
        classes=asked["num_classes"],
        label_smoothing=asked["label_smoothing"],
        class_weights=asked["class_weights"],
        batch=asked["batch"],
        augment=asked["augment"],
        normalised_parts=asked["normalised_parts"],
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
    slots = Slots.place(weights, asked["optimizer"], list(now))
    slots.write(os.path.join(folder, "weights.npz"), now, asked["step"])
    # `training.py` loads its own.
    del model, now
    measured = _measure(module, weights, slots, asked, arrays)
    return {**measured, "places": {**weights.told, **slots.told}, "modules": _homes(own)}


def _build(asked: Mapping[str, Any], batch: Features) -> Any:
    """Calls the network's function, and the network by an example."""
    module_name, _, name = asked["target"].partition(":")
    try:
        if module_name == _BUILT_IN:
            return getattr(networks, name)(*asked["given"], shape=batch[_IMAGE].shape[1:], **asked["named"])
        function = getattr(importlib.import_module(loader.import_name(module_name)), name)
        network = function(*asked["given"], **asked["named"])
        if not isinstance(network, keras.Model):
            raise UserCodeError(
                f"trainer.model: {asked['target']!r} returned {type(network).__name__}, which is no model of Keras 3",
                expected="a function that makes its layers by tf.keras",
                todo="take tf.keras.… for what is imported of Keras; or convert to keras2",
            )
        network(_chosen(network, {key: each[:1] for key, each in batch.items()}), training=False)
        return network
    except TfxEstimatorError:
        raise
    except Exception as error:  # whatever the user's code raises
        raise _told(error, f"trainer.model: Keras 3 cannot build {asked['target']!r}") from error


def _told(error: Exception, what: str) -> UserCodeError:
    """Tells an error with the last line of the user's code in it."""
    lines = "".join(user_lines(error)[-1:]).rstrip()
    return UserCodeError(
        f"{what}: {type(error).__name__}: {first_line(error)}" + (f"\n{lines}" if lines else ""),
        expected="what Keras 2 and Keras 3 both have, of tf.keras alone",
        todo="change that line; or convert to keras2",
    )


def _features(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}


def _chosen(model: Any, features: Features) -> Any:
    """Chooses what a model is called with: see `keras_model.inputs_of`."""
    alone = _alone(model, features)
    if alone:
        return features[alone]
    is_functional = getattr(model, "_inputs_struct", None) is not None
    return {name: features[name] for name in (_names(model) if is_functional else features)}


def _alone(model: Any, features: Features) -> str:
    """Names the only feature that a model is called with; empty where that is a dict."""
    is_sequential = isinstance(model, keras.Sequential)
    if is_sequential or getattr(model, "_inputs_struct", None) is None:
        # Of a class of the user's, which may ask for any of them.
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
    """The classes of layers that Keras does not know."""
    kinds = {type(each) for each in (model, *model._flatten_layers())}
    return {each for each in kinds if not each.__module__.startswith("keras.")}


def _plain(module: str) -> str:
    """What a module is called where it hides none that is installed: beside `training.py`."""
    return module.removeprefix(f"{loader.PACKAGE}.")


def _homes(own: set[type]) -> dict[str, str]:
    """The user's modules of layers, and the folder that each is imported from."""
    files = {_plain(each.__module__): Path(inspect.getfile(each)).resolve() for each in own}
    return {
        name: str((file.parent if file.stem == "__init__" else file).parents[name.count(".")])
        for name, file in files.items()
        if not is_installed(Module(name, file)) and not is_project(Module(name, file))
    }


def _is_sparse(model: Any, inputs: Any) -> bool:
    """Do gradients come by rows."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(inputs, training=False))
    found = tape.gradient(loss, [each.value for each in model.trainable_variables])
    return any(isinstance(each, tf.IndexedSlices) for each in found)


def _normalises_images(layer: Any) -> bool:
    return isinstance(layer, keras.layers.BatchNormalization) and layer.input_spec.ndim == 4


def _import(path: str) -> Any:
    # Beside what is handed on.
    sys.dont_write_bytecode = True
    # By a module's plain name it imports the user's, as it will from where that is copied to.
    spec = importlib.util.spec_from_file_location("training", path, loader=loader.Loader("training", path))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _measure(
    module: Any, weights: Weights, slots: Slots, asked: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """Asks what `training.py` loads for the logits of all evaluation examples, and trains it by one batch."""
    model, optimizer = module.load()
    slots.require_all(optimizer)
    worst, classes = 0.0, 0
    for number in range(asked["evaluated"]):
        features = _features(arrays, f"eval/{number}/")
        old = arrays[f"logits/{number}"]
        answer = model(_chosen(model, features), training=False)
        new = np.asarray(answer if asked["compared"] == "logits" else tf.nn.softmax(answer))
        worst = max(worst, difference(old, new))
        classes += int((old.argmax(axis=1) != new.argmax(axis=1)).sum())
    told: dict[str, Any] = {"logits": worst, "classes": classes, "next_step": {}, "step_parts": {}, "rounding": []}
    if not asked["trains"]:
        return told
    batch = _features(arrays, "train/")
    given = _chosen(model, batch), arrays["labels"]
    module.train_step(model, optimizer, *given)
    moved = {place: difference(arrays[f"after/{place}"], value) for place, value in weights.values(model)}
    if max(moved.values()) > _NOTICED:
        noise = _of_rounding(module, weights, *given)
        told["rounding"] = [place for place, value in moved.items() if value > _NOTICED and place in noise]
    step, paths = Step(), {**dict(zip(weights.places, weights.paths)), **slots.paths}
    trained = {each.path for each in model.trainable_variables}
    with np.load(asked["weights"]) as before:
        for place, value in weights.values(model):
            if place not in told["rounding"]:
                group = "trained" if paths[place] in trained else "other"
                step.add("weight", group, before[paths[place]], arrays[f"after/{place}"], value)
        for place, value in slots.values(optimizer):
            group = place.rpartition("/")[2]
            step.add("slot", group, before[paths[place]], arrays[f"after/{place}"], value)
    return {**told, "next_step": dict(step.largest), "step_parts": step.parts}


def _of_rounding(module: Any, weights: Weights, inputs: Any, labels: np.ndarray) -> set[str]:
    """Names the weights whose gradients are nothing but rounding, such as a bias before a normalisation.

    Adam divides it by its own size, so that each order of summation has another step, which changes no answer.
    """
    model, _ = module.load()
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(module.loss_of(labels, model(inputs, training=True)))
    variables = model.trainable_variables
    found = tape.gradient(loss, [each.value for each in variables], unconnected_gradients="zero")
    largest = {each.path: float(np.abs(tf.convert_to_tensor(one)).max()) for each, one in zip(variables, found)}
    noise = {path for path, value in largest.items() if value < _ROUNDING * max(largest.values())}
    return {place for path, place in zip(weights.paths, weights.places) if path in noise}
