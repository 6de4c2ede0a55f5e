"""Puts the layers of a network on devices of one process: its variables, what it computes and its gradients.

It works in the graph of an Estimator and for Keras alike. What is inside of a layer is where the layer is; what a
network computes between its layers is where TensorFlow would have put it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.pipeline.base.errors import DeclarationError, UserCodeError
from tfx_estimator.pipeline.base.stack import keras2

# In the graph of an Estimator layers are of the second class.
_CLASSES = (keras2.internal("engine.base_layer").Layer, keras2.internal("engine.base_layer_v1").Layer)
_GPU = "gpu:"


class Placement:
    """Which layers are on which device.

    Args:
        option: Dotted path in the declaration, for messages.
        devices: As declared: `cpu:1`.
        layers: The place of a device, from 0, by the name of a layer or a pattern of names. Of several patterns that
            fit the longest decides; a layer that none fits is on the first device.

    Raises:
        DeclarationError: This process has not the GPUs.
    """

    def __init__(self, option: str, devices: Sequence[str], layers: Mapping[str, int]) -> None:
        self._option = option
        self._devices = [device_name(each) for each in devices]
        self._layers = dict(layers)
        # No op, unlike the list of logical devices.
        there = len(tf.config.list_physical_devices("GPU"))
        wanted = max((int(each.removeprefix(_GPU)) + 1 for each in devices if each.startswith(_GPU)), default=0)
        if wanted > there:
            raise DeclarationError(
                f"{option}.devices asks for gpu:{wanted - 1}",
                expected=f"devices of this machine, on which this process finds {there} GPUs, counted from 0",
                todo="name others, as cpu:0 and cpu:1",
            )

    def device_of(self, layer: str) -> str:
        """Returns the device of a layer, by its name."""
        if layer in self._layers:
            return self._devices[self._layers[layer]]
        fitting = [pattern for pattern in self._layers if fnmatchcase(layer, pattern)]
        # Not by their order, which a declaration in JSON does not keep.
        best = max(fitting, key=lambda pattern: (len(pattern), pattern), default=None)
        return self._devices[0 if best is None else self._layers[best]]

    @contextlib.contextmanager
    def used(self, model: Optional[tf.keras.Model] = None) -> Iterator[None]:
        """Has layers that are called inside make their variables, and compute, on their devices.

        Args:
            model: Whose layers are meant; None while it is made, when those of a functional model are called.
        """
        wanted = None if model is None else {id(layer) for layer in model.layers}
        # What is called inside of a layer is a part of it.
        inside = False

        def placed(original: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(original)
            def call(layer: tf.keras.layers.Layer, *args: Any, **kwargs: Any) -> Any:
                nonlocal inside
                if inside or (wanted is not None and id(layer) not in wanted):
                    return original(layer, *args, **kwargs)
                inside = True
                try:
                    with tf.device(self.device_of(layer.name)):
                        return original(layer, *args, **kwargs)
                finally:
                    inside = False

            return call

        originals = [each.__call__ for each in _CLASSES]
        for each, original in zip(_CLASSES, originals):
            each.__call__ = placed(original)
        try:
            yield
        finally:
            for each, original in zip(_CLASSES, originals):
                each.__call__ = original

    def check(self, model: tf.keras.Model) -> None:
        """Refuses names that are no layer's, and layers that keep variables elsewhere.

        Args:
            model: Called, so that it has all its variables.

        Raises:
            UserCodeError: A pattern fits no layer, or a layer's variables were made before it was called.
        """
        names = [layer.name for layer in model.layers]
        for pattern in self._layers:
            if pattern not in names and not any(fnmatchcase(name, pattern) for name in names):
                raise no_such_layer(f"{self._option}.layers", pattern, names)
        for layer in model.layers:
            wanted = tf.DeviceSpec.from_string(self.device_of(layer.name))
            for variable in layer.variables:
                found = tf.DeviceSpec.from_string(variable.device)
                if (found.device_type, found.device_index) != (wanted.device_type, wanted.device_index):
                    raise UserCodeError(
                        f"{self._option}: {variable.name} of the layer {layer.name} is on "
                        f"{variable.device or 'no device'}, as it was made before the layer was called in the network",
                        expected="layers that make their variables when they are called first, as Keras's do",
                        todo="make them in `build`; and a model inside of the network of layers that have no input yet",
                    )


def device_name(declared: str) -> str:
    """Returns TensorFlow's name of a declared device: `/device:CPU:1` of `cpu:1`."""
    return f"/device:{declared.upper()}"


def no_such_layer(option: str, pattern: str, names: Sequence[str]) -> UserCodeError:
    """Returns the error of a name that is no layer's."""
    return UserCodeError(
        f"{option}: the network has no layer {pattern!r}",
        expected=f"its layers, or patterns of them: {', '.join(names)}",
        todo="name one of them",
    )
