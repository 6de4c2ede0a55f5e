"""The sections `trainer.model_parallel`, `pipeline_parallel` and `sync_every`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Union

from tfx_estimator.pipeline.config.section import Field, Limits, Section, number, shorthand

# Prefix of the names of a stage's operations, before its number, by which a profile identifies the stages.
STAGE_SCOPE = "pipeline_stage"
_MOST = 64
_MOST_STEPS = 10_000
# The short form of `sync_every`.
IN_STEPS = {"short_form": {"type": "integer", "minimum": 1, "maximum": _MOST_STEPS}, "expand": shorthand("steps", int)}
_Index = Annotated[int, Limits(0, lt=_MOST)]
DEVICE = re.compile(r"(cpu|gpu):([0-9]|[1-5][0-9]|6[0-3])")
_Device = Annotated[str, Limits(pattern=f"^{DEVICE.pattern}$")]


class ModelParallel(Section):
    """The placement of layers on devices; each device in turn computes the whole batch through its layers."""

    devices: tuple[_Device, ...] = Field(..., "devices of one process: [cpu:0, cpu:1], logical CPUs, or [gpu:0, gpu:1]")
    layers: dict[str, _Index] = Field(
        ...,
        "{layer: device}: a layer's name, or a pattern of names as `conv*`, and the index of a device in "
        "`devices`, from 0; the longest pattern wins; other layers are on the first device",
    )

    @property
    def logical_cpus(self) -> int:
        """The logical CPUs that the devices need; 0 if they are all GPUs."""
        return _logical_cpus(self.devices)

    def wrong_devices(self) -> Iterator[str]:
        """Yields what is wrong with the devices."""
        if len(self.devices) < 2:
            yield "there is only one device"
        yield from _twice(self.devices)


class PipelineParallel(Section):
    """Pipeline parallelism: the network in stages, each on its own device, through which microbatches flow.

    Source: Huang et al., GPipe, 2018, https://arxiv.org/abs/1811.06965; the schedule, one forward, one backward:
    Narayanan et al., PipeDream, 2019, https://arxiv.org/abs/1806.03377.
    """

    stages: Union[Annotated[int, Limits(2, le=_MOST)], tuple[tuple[str, ...], ...]] = Field(
        ...,
        "number of stages, with about equal floating-point operations; or the layers of each: "
        "[[conv1], [dense1]], where other layers join the one before them",
    )
    microbatches: int = number(..., 1, 1000, "microbatches per batch")
    devices: tuple[_Device, ...] = Field(
        (), "one per stage; by default GPUs, if there are enough, else logical CPUs", operational=True
    )

    @property
    def stage_count(self) -> int:
        """Number of stages."""
        return self.stages if isinstance(self.stages, int) else len(self.stages)

    @property
    def logical_cpus(self) -> int:
        """The logical CPUs that the devices may need; 0 if they are all GPUs."""
        return _logical_cpus(self.devices) if self.devices else self.stage_count

    def wrong_devices(self) -> Iterator[str]:
        """Yields what is wrong with the devices."""
        if self.devices and len(self.devices) != self.stage_count:
            yield f"there are {len(self.devices)} for {self.stage_count} stages"
        yield from _twice(self.devices)

    def wrong_stages(self) -> Iterator[str]:
        """Yields what is wrong with the layers of each stage."""
        if isinstance(self.stages, tuple):
            if len(self.stages) < 2 or not all(self.stages):
                yield "a pipeline needs at least two stages, each with a layer"
            yield from _twice([name for stage in self.stages for name in stage])

    @property
    def ideal_bubble(self) -> float:
        """The fraction of a step that a device idles if all stages are equal: (p - 1) / (m + p - 1)."""
        return (self.stage_count - 1) / (self.microbatches + self.stage_count - 1)


def _logical_cpus(devices: tuple[str, ...]) -> int:
    found = [each for name in devices if (each := DEVICE.fullmatch(name))]
    return max((int(each[2]) + 1 for each in found if each[1] == "cpu"), default=0)


def _twice(names: Sequence[str]) -> Iterator[str]:
    yield from (f"{name} is listed more than once" for name in dict.fromkeys(names) if names.count(name) > 1)


class SyncEvery(Section):
    """Local SGD: how often the workers average their weights.

    Source: Stich, Local SGD Converges Fast and Communicates Little, 2018, https://arxiv.org/abs/1805.09767; for the
    momentum: Wang et al., SlowMo, 2019, https://arxiv.org/abs/1910.00643.
    """

    steps: int = number(..., 1, _MOST_STEPS, "steps between two averagings of the weights")
    outer_momentum: float = number(
        0.0,
        0,
        None,
        "momentum of the weights' change from one averaging to the next; keeps two more copies of the weights",
        lt=1,
    )
