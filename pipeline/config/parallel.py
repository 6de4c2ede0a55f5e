"""Layers of one network on several devices of a process, and processes that average their weights now and then."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Union

from tfx_estimator.pipeline.config.section import Field, Limits, Section, number, shorthand

# Begins the names of a stage's operations, before its number: a profile tells the stages apart by it.
STAGE_SCOPE = "pipeline_stage"
_MOST = 64
_MOST_STEPS = 10_000
# What `sync_every` takes in short, with the schema for editors.
IN_STEPS = {"short_form": {"type": "integer", "minimum": 1, "maximum": _MOST_STEPS}, "expand": shorthand("steps", int)}
_Index = Annotated[int, Limits(0, lt=_MOST)]
DEVICE = re.compile(r"(cpu|gpu):([0-9]|[1-5][0-9]|6[0-3])")
_Device = Annotated[str, Limits(pattern=f"^{DEVICE.pattern}$")]


class ModelParallel(Section):
    """Which layers are on which device; each device computes the whole batch through its own layers, in turn."""

    devices: tuple[_Device, ...] = Field(..., "of one process: [cpu:0, cpu:1], logical CPUs, or [gpu:0, gpu:1]")
    layers: dict[str, _Index] = Field(
        ...,
        "{layer: device}: a layer's name, or a pattern of names as `conv*`, and the place of a device in "
        "`devices`, from 0; a layer that is not named is on the first one",
    )

    @property
    def logical_cpus(self) -> int:
        """How many logical CPUs the devices need; 0 if they are all GPUs."""
        return _logical_cpus(self.devices)

    def wrong_devices(self) -> Iterator[str]:
        """Yields what is wrong with the devices."""
        if len(self.devices) < 2:
            yield "there is one place only"
        yield from _twice(self.devices)


class PipelineParallel(Section):
    """The network in stages, each on a device of its own, through which the parts of a batch go one behind the other.

    Source: Huang et al., GPipe, 2018, https://arxiv.org/abs/1811.06965; the order of a stage's work, one part forward
    and one back: Narayanan et al., PipeDream, 2019, https://arxiv.org/abs/1806.03377.
    """

    stages: Union[Annotated[int, Limits(2, le=_MOST)], tuple[tuple[str, ...], ...]] = Field(
        ...,
        "how many, cut where each has about as many floating-point operations; or the layers of each: "
        "[[conv1], [dense1]], where those that are not named go with the one before them",
    )
    microbatches: int = number(..., 1, 1000, "parts of a batch")
    devices: tuple[_Device, ...] = Field(
        (), "one for each stage; none are GPUs, where there are as many, and else logical CPUs", operational=True
    )

    @property
    def stage_count(self) -> int:
        """How many stages."""
        return self.stages if isinstance(self.stages, int) else len(self.stages)

    @property
    def logical_cpus(self) -> int:
        """How many logical CPUs the devices may need; 0 if they are all GPUs."""
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
                yield "a pipeline has two stages or more, with a layer each"
            yield from _twice([name for stage in self.stages for name in stage])

    @property
    def ideal_bubble(self) -> float:
        """The part of a step's time in which a device waits, were all stages equal: (p - 1) / (m + p - 1)."""
        return (self.stage_count - 1) / (self.microbatches + self.stage_count - 1)


def _logical_cpus(devices: tuple[str, ...]) -> int:
    found = [each for name in devices if (each := DEVICE.fullmatch(name))]
    return max((int(each[2]) + 1 for each in found if each[1] == "cpu"), default=0)


def _twice(names: Sequence[str]) -> Iterator[str]:
    yield from (f"{name} is there more than once" for name in dict.fromkeys(names) if names.count(name) > 1)


class SyncEvery(Section):
    """How often the workers' weights are averaged.

    Source: Stich, Local SGD Converges Fast and Communicates Little, 2018, https://arxiv.org/abs/1805.09767; of the
    momentum: Wang et al., SlowMo, 2019, https://arxiv.org/abs/1910.00643.
    """

    steps: int = number(..., 1, _MOST_STEPS, "steps between two averagings of the weights")
    outer_momentum: float = number(0.0, 0, None, "momentum of what the averagings change, from one to the next", lt=1)
