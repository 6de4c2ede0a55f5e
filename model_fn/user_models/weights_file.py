"""Weights in a file of Keras, HDF5 or an archive with it: found by the names of variables, or by the layers' places."""

from __future__ import annotations

import fnmatch
import io
import zipfile
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import h5py
import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.user_models.freezing import layers_of, own_weights
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.base.stack import keras2

_LAYERS, _MODEL, _IN_ARCHIVE = "layer_names", "model_weights", "model.weights.h5"
# Attributes of a layer that hold no layers, and that Keras computes anew in a graph.
_NO_LAYERS = frozenset({"losses", "updates", "state_updates", "inputs", "outputs", "input", "output"})


class KerasFile:
    """A file of weights, with the interface of a checkpoint's reader.

    Two formats: the older one has the names of layers and variables. The newer one, `.weights.h5` and `.keras`, has
    each layer's place among those of its class, so only the layers of a `tf.keras.Model` find their weights in it.
    """

    def __init__(self, path: str) -> None:
        is_archive = zipfile.is_zipfile(path)
        file = h5py.File(io.BytesIO(zipfile.ZipFile(path).read(_IN_ARCHIVE)) if is_archive else path, "r")
        self._root = file.get(_MODEL, file)
        self._by_name = _LAYERS in self._root.attrs or f"{_LAYERS}0" in self._root.attrs
        # The keys of each layer's variables, in order.
        self._layers: dict[str, list[str]] = {}
        if self._by_name:
            read = keras2.internal("saving.legacy.hdf5_format").load_attributes_from_hdf5_group
            for layer in read(self._root, _LAYERS):
                self._layers[layer] = [f"{layer}/{name}" for name in read(self._root[layer], "weight_names")]
        else:
            self._root.visititems(self._add)
        self._shapes = {key: list(self._root[key].shape) for keys in self._layers.values() for key in keys}

    def _add(self, key: str, item: Any) -> None:
        place, _, number = key.rpartition("/vars/")
        if isinstance(item, h5py.Dataset) and number.isdigit():
            keys = self._layers.setdefault(place, [])
            keys.append(key)
            keys.sort(key=lambda each: int(each.rpartition("/")[2]))

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Returns the shape of each variable, by its key."""
        return self._shapes

    def get_tensor(self, key: str) -> np.ndarray:
        """Returns a variable's value."""
        return np.asarray(self._root[key])

    def named(self, models: Sequence[tf.keras.Model], names: Container[str], part: str = "") -> dict[str, str]:
        """Returns the keys by the names of variables: in this file, and of these models.

        Args:
            models: Those that may be the file's, or contain it.
            names: Of the variables that are searched.
            part: The name of the model that is the file's, if it is known.

        Raises:
            UserCodeError: Several models fit the file equally well.
        """
        inner = {id(layer): layer for model in models for _, layer in layers_of(model)}
        if not self._by_name:
            known = {id(layer) for model in models for path, layer in layers_of(model) if is_within(path, part)}
            parts = [each for each in inner.values() if isinstance(each, tf.keras.Model)]
            return self._best([each for each in parts if id(each) in known] or parts, names)
        times: dict[str, list[str]] = {}
        for layer, keys in self._layers.items():
            for key in keys:
                times.setdefault(_plain(key.removeprefix(f"{layer}/")), []).append(key)
        named = {name: keys[0] for name, keys in times.items() if len(keys) == 1}
        # Keras's older files have other names of variables than its layers now give: `block1_conv1_W_1`.
        for layer in inner.values():
            names = [_plain(each.name) for each in own_weights(layer)]
            if names and not named.keys() & set(names) and len(self._layers.get(layer.name, ())) == len(names):
                named.update(zip(names, self._layers[layer.name]))
        return named

    def _best(self, parts: Sequence[tf.keras.Model], names: Container[str]) -> dict[str, str]:
        """Returns the keys of the model that fits the file best."""
        found = [(*self._placed(_places(part), root), part.name) for part in parts for root in self._roots()]
        # A model that was made for a check is in no graph.
        found = [each for each in found if any(name in names for name in each[1])]
        fitting, best, name = max(found, key=lambda each: each[0], default=(0, {}, ""))
        others = [other for count, keys, other in found if count == fitting and best.keys().isdisjoint(keys)]
        if fitting and others:
            raise UserCodeError(
                f"trainer.warm_start.weights: {name} and {others[0]} in the model fit the file equally well",
                expected="a file that fits one of them better, or trainer.warm_start.prefix",
                todo=f"name the one that is meant: prefix: {name}, or prefix: {others[0]}",
            )
        return best

    def _roots(self) -> list[str]:
        """Returns the places in the file of what may be a model."""
        roots = {place.rpartition("/layers/")[0] for place in self._layers}
        return sorted({"", *roots})

    def _placed(self, places: Mapping[str, Any], root: str) -> tuple[int, dict[str, str]]:
        """Returns the keys by the names of a model's variables, and how many have their shape."""
        found, fitting = {}, 0
        for place, layer in places.items():
            own = own_weights(layer)
            keys = self._layers.get(f"{root}/{place}".strip("/"), [])
            if len(keys) == len(own):
                found.update({_plain(each.name): key for each, key in zip(own, keys)})
                fitting += sum(each.shape.as_list() == self._shapes[key] for each, key in zip(own, keys))
        return fitting, found


def is_inside(name: str, part: str) -> bool:
    """Returns whether a name begins with the components of a part, which may be a pattern."""
    part = part.rstrip("/")
    return not part or any(fnmatch.fnmatchcase(name, each) for each in (part, f"{part}/*"))


def is_within(path: Sequence[str], part: str) -> bool:
    """Returns whether a layer, by the names of those that contain it and its own, is in a part of the model."""
    return any(is_inside("/".join(path[place:]), part) for place in range(len(path)))


def write_checkpoint(prefix: str, values: Mapping[str, np.ndarray]) -> None:
    """Writes values as a checkpoint, for TensorFlow's operations in a graph."""
    tf.io.gfile.makedirs(prefix.rpartition("/")[0])
    # In a session of its own, which takes no GPU: another graph, or TensorFlow 1's behaviour, may be around.
    with tf.Graph().as_default(), tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(device_count={"GPU": 0})) as run:
        given = {tf.compat.v1.placeholder(each.dtype, each.shape): each for each in values.values()}
        run.run(
            tf.raw_ops.SaveV2(
                prefix=prefix, tensor_names=[*values], shape_and_slices=[""] * len(values), tensors=[*given]
            ),
            given,
        )


def _plain(name: str) -> str:
    return name.partition(":")[0]


def _places(model: tf.keras.Model) -> dict[str, Any]:
    """Returns a model's layers by their places in a file, as Keras's `saving_lib._save_state` names them."""
    return dict(_walk(model, "", set()))


def _walk(layer: Any, place: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    saving = keras2.internal("saving.saving_lib")
    seen.add(id(layer))
    yield place, layer
    for name in sorted(dir(layer), reverse=True):
        if name.startswith("__") or name in saving.ATTR_SKIPLIST or name in _NO_LAYERS:
            continue
        try:
            child = getattr(layer, name)
        except Exception:
            continue
        inner = f"{place}/{name}".strip("/")
        if isinstance(child, tf.Module):
            children = iter([(inner, child)])
        elif isinstance(child, (list, dict, tuple, set)):
            children = _numbered(child, inner, seen)
        else:
            continue
        for where, each in children:
            if isinstance(each, tf.keras.layers.Layer) and id(each) not in seen:
                yield from _walk(each, where, seen)


def _numbered(container: Any, place: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yields the items of a container, each named by its class and its number among those."""
    snake = keras2.internal("utils.generic_utils").to_snake_case
    times: dict[str, int] = {}
    for each in [*container.values()] if isinstance(container, dict) else container:
        if isinstance(each, tf.keras.layers.Layer) and id(each) not in seen:
            name = snake(type(each).__name__)
            number = times[name] = times.get(name, -1) + 1
            yield f"{place}/{name}" + (f"_{number}" if number else ""), each
