"""A network that is divided among devices of one process: by its layers, or into stages."""

from __future__ import annotations

import contextlib
import contextvars
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.model_fn.keras_model import inputs_of
from tfx_estimator.model_fn.pipelining import Pipeline, Stage
from tfx_estimator.model_fn.placement import Placement, device_name
from tfx_estimator.model_fn.precision import stored
from tfx_estimator.model_fn.stages import balanced, chain_of, costs_of, numbers_of, uncuttable
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.parallel import PipelineParallel
from tfx_estimator.pipeline.config.trainer import TrainerSection

_MODEL, _PIPELINE = "trainer.model_parallel", "trainer.pipeline_parallel"
_WHOLE = contextvars.ContextVar("whole_network", default=False)


@contextlib.contextmanager
def whole_network() -> Iterator[None]:
    """Has networks that are made inside be on one device, as what is exported must be, whatever is declared."""
    token = _WHOLE.set(True)
    try:
        yield
    finally:
        _WHOLE.reset(token)


def is_whole() -> bool:
    """Is a network that is made here to be on one device: see `whole_network`."""
    return _WHOLE.get()


@dataclass(frozen=True)
class Division:
    """Where the layers of a declaration's network are.

    Args:
        placement: The devices of the layers.
        stages: Of a pipeline, the names of each one's layers; none where layers are only put somewhere.
        parts: Of a batch, in a pipeline.
    """

    placement: Placement
    stages: tuple[tuple[str, ...], ...] = ()
    devices: tuple[str, ...] = ()
    parts: int = 1

    def used(self, model: Optional[tf.keras.Model] = None) -> AbstractContextManager[None]:
        """See `Placement.used`."""
        return self.placement.used(model)

    def check(self, model: tf.keras.Model) -> None:
        """See `Placement.check`."""
        self.placement.check(model)

    # AutoGraph would make another error of ours.
    @tf.autograph.experimental.do_not_convert
    def pipeline(self, model: tf.keras.Model, section: TrainerSection, **own: Any) -> Pipeline:
        """Returns what computes a step in stages.

        Args:
            model: Called, so that it has all its variables.
            **own: Further fields of `Pipeline`.

        Raises:
            UserCodeError: Layers of two stages have a variable in common.
        """
        links = {link.layer.name: link for link in chain_of(model)}
        stages: list[Stage] = []
        seen: set[int] = set()
        for names, device in zip(self.stages, self.devices):
            layers = [links[name] for name in names]
            found = {id(each): each for link in layers for each in link.layer.trainable_variables}
            if both := seen & set(found):
                raise uncuttable(model, f"two of its stages share {found[both.pop()].name}")
            seen |= set(found)
            stages.append(Stage(device_name(device), layers, stored(list(found.values()))))
        return Pipeline(
            stages,
            stored(model.trainable_variables),
            self.parts,
            feed=lambda features: tf.nest.flatten(inputs_of(model, features))[0],
            global_batch_size=section.global_batch_size,
            loss_options=section.loss_options,
            weight_decay=section.optimizer.weight_decay,
            seed=section.seed,
            **own,
        )

    def __str__(self) -> str:
        return ", ".join(f"{'+'.join(names)} on {device}" for names, device in zip(self.stages, self.devices))


def find_division(
    section: TrainerSection, make: Callable[[], tf.keras.Model], features: Mapping[str, tf.TypeSpec]
) -> Optional[Division]:
    """Finds out where the layers of the declared network are to be.

    Args:
        make: Makes the network; it is made again afterwards.
        features: Of one example, [1, ...].

    Returns:
        None if all of it is on one device.

    Raises:
        DeclarationError: This process has not the declared devices.
        UserCodeError: The network cannot be divided so.
    """
    if declared := section.model_parallel:
        return Division(Placement(_MODEL, declared.devices, declared.layers))
    if section.pipeline_parallel:
        return _find_stages(section.pipeline_parallel, make(), features)
    return None


def refuse_division(section: TrainerSection, target: str, brings: str) -> None:
    """Refuses to put layers anywhere where the step is not ours.

    Args:
        target: `trainer.model`.
        brings: What it is instead of a network.

    Raises:
        UserCodeError: Layers are to be on several devices.
    """
    if not section.is_divided:
        return
    raise UserCodeError(
        f"{_MODEL if section.model_parallel else _PIPELINE}: {target!r} {brings}: its gradients would be computed "
        "elsewhere than its layers",
        expected="a function that returns a network, not compiled: loss and optimizer are then the declaration's",
        todo="remove it, or name such a function by trainer.model",
    )


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
    stages = [tuple(name for name, number in zip(names, numbers) if number == stage) for stage in range(count)]
    devices = declared.devices or _default_devices(count)
    placement = Placement(_PIPELINE, devices, dict(zip(names, numbers)))
    division = Division(placement, tuple(stages), tuple(devices), declared.microbatches)
    # Into the task's log.
    sys.stdout.write(f"{_PIPELINE}: {division}\n")
    return division


def _default_devices(count: int) -> list[str]:
    kind = "gpu" if len(tf.config.list_physical_devices("GPU")) >= count else "cpu"
    return [f"{kind}:{number}" for number in range(count)]
