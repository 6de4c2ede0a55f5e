"""Division of a network among the devices of one process: by layers, or into pipeline stages.

A layer's variables, operations and gradients are on its device, in an Estimator's graph and in Keras alike. Sublayers
are on the device of their layer; TensorFlow places operations between layers.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.model_fn.parallel.pipelining import Pipeline, Stage
from tfx_estimator.model_fn.parallel.stages import balanced, chain_of, costs_of, no_such_layer, numbers_of, uncuttable
from tfx_estimator.model_fn.step.objective import Objective
from tfx_estimator.model_fn.step.precision import stored
from tfx_estimator.model_fn.user_models.keras_model import inputs_of
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.stack import keras2
from tfx_estimator.pipeline.config.parallel import PipelineParallel
from tfx_estimator.pipeline.config.trainer import TrainerSection

_MODEL, _PIPELINE = "trainer.model_parallel", "trainer.pipeline_parallel"
# In an Estimator's graph layers are of the second class.
_CLASSES = (keras2.internal("engine.base_layer").Layer, keras2.internal("engine.base_layer_v1").Layer)
_GPU = "gpu:"
_WHOLE = contextvars.ContextVar("whole_network", default=False)


@contextlib.contextmanager
def whole_network() -> Iterator[None]:
    """Places networks created in this context on one device, as export requires, despite the declaration."""
    token = _WHOLE.set(True)
    try:
        yield
    finally:
        _WHOLE.reset(token)


def is_whole() -> bool:
    """Returns True within `whole_network`."""
    return _WHOLE.get()


@dataclass(frozen=True)
class Division:
    """The devices of a network's layers.

    Args:
        option: Dotted path in the declaration, for messages.
        devices: As declared: `cpu:1`.
        layers: Index of a device, by the name of a layer or a pattern of names. The longest matching pattern wins; a
            layer that matches none is on the first device.
        stages: The layers' names for each stage of a pipeline; empty for plain model parallelism.
        parts: Microbatches of a batch, in a pipeline.
    """

    option: str
    devices: tuple[str, ...]
    layers: Mapping[str, int]
    stages: tuple[tuple[str, ...], ...] = ()
    parts: int = 1

    def __post_init__(self) -> None:
        # Listing physical devices does not initialise TensorFlow, unlike listing logical ones.
        available = len(tf.config.list_physical_devices("GPU"))
        wanted = max((int(each.removeprefix(_GPU)) + 1 for each in self.devices if each.startswith(_GPU)), default=0)
        if wanted > available:
            raise DeclarationError(
                f"{self.option}.devices asks for gpu:{wanted - 1}",
                expected=f"devices of this machine, on which this process finds {available} GPUs, counted from 0",
                todo="name others, such as cpu:0 and cpu:1",
            )

    def device_of(self, layer: str) -> str:
        """Returns TensorFlow's name of a layer's device, by the layer's name."""
        if layer in self.layers:
            return _device_name(self.devices[self.layers[layer]])
        matching = [pattern for pattern in self.layers if fnmatchcase(layer, pattern)]
        # Not the first match: a declaration in JSON does not keep the order.
        best = max(matching, key=lambda pattern: (len(pattern), pattern), default=None)
        return _device_name(self.devices[0 if best is None else self.layers[best]])

    @contextlib.contextmanager
    def used(self, model: Optional[tf.keras.Model] = None) -> Iterator[None]:
        """Places layers called in this context, with their variables, on their devices.

        Args:
            model: Limits it to this model's layers; None for any, while a functional model is constructed.
        """
        wanted = None if model is None else {id(layer) for layer in model.layers}
        # Sublayers stay on the device of the layer that calls them.
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
        """Refuses names and patterns that match no layer: the layer they mean would stay on the first device."""
        names = [layer.name for layer in model.layers]
        for pattern in self.layers:
            if pattern not in names and not any(fnmatchcase(name, pattern) for name in names):
                raise no_such_layer(f"{self.option}.layers", pattern, names)

    def pipeline(self, model: tf.keras.Model, objective: Objective, seed: int, step: tf.Tensor) -> Pipeline:
        """Returns the pipeline of a model that has all its variables."""
        links = {link.layer.name: link for link in chain_of(model)}
        stages: list[Stage] = []
        seen: set[int] = set()
        for names, device in zip(self.stages, self.devices):
            layers = [links[name] for name in names]
            found = {id(each): each for link in layers for each in link.layer.trainable_variables}
            if both := seen & set(found):
                raise uncuttable(model, f"two of its stages share {found[both.pop()].name}")
            seen |= set(found)
            stages.append(Stage(_device_name(device), layers, stored(list(found.values()))))
        return Pipeline(
            stages,
            stored(model.trainable_variables),
            self.parts,
            feed=lambda features: tf.nest.flatten(inputs_of(model, features))[0],
            objective=objective,
            seed=seed,
            step=step,
        )

    def __str__(self) -> str:
        return ", ".join(f"{'+'.join(names)} on {device}" for names, device in zip(self.stages, self.devices))


def _device_name(declared: str) -> str:
    """Returns TensorFlow's name of a declared device: `/device:CPU:1` for `cpu:1`."""
    return f"/device:{declared.upper()}"


def find_division(
    section: TrainerSection, make: Callable[[], tf.keras.Model], features: Mapping[str, tf.TypeSpec]
) -> Optional[Division]:
    """Returns the declared network's division; None if all of it is on one device.

    Args:
        make: Constructs a network to inspect; training constructs another.
    """
    if declared := section.model_parallel:
        return Division(_MODEL, tuple(declared.devices), declared.layers)
    if section.pipeline_parallel:
        return _find_stages(section.pipeline_parallel, make(), features)
    return None


def _find_stages(declared: PipelineParallel, model: tf.keras.Model, features: Mapping[str, tf.TypeSpec]) -> Division:
    links = chain_of(model)
    names = [link.layer.name for link in links]
    if isinstance(declared.stages, tuple):
        numbers = numbers_of(names, declared.stages)
    else:
        inputs = inputs_of(model, {name: tf.zeros(each.shape, each.dtype) for name, each in features.items()})
        model(inputs, training=False)
        numbers = balanced(costs_of(links, tf.nest.flatten(inputs)[0]), declared.stages)
    count = declared.stage_count
    stages = tuple(tuple(name for name, number in zip(names, numbers) if number == stage) for stage in range(count))
    devices = tuple(declared.devices or _default_devices(count))
    division = Division(_PIPELINE, devices, dict(zip(names, numbers)), stages, declared.microbatches)
    # To the task's log.
    sys.stdout.write(f"{_PIPELINE}: {division}\n")
    return division


def _default_devices(count: int) -> list[str]:
    kind = "gpu" if len(tf.config.list_physical_devices("GPU")) >= count else "cpu"
    return [f"{kind}:{number}" for number in range(count)]
