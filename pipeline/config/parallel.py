"""`trainer.model_parallel` and `trainer.pipeline_parallel`: layers of one network on several devices of a process."""

from __future__ import annotations

import re
from typing import Union

from pydantic.v1 import Field, conint

from tfx_estimator.pipeline.config.section import Section

_MOST = 64
_INDEX = conint(ge=0, lt=_MOST)
DEVICE = re.compile(r"(cpu|gpu):([0-9]|[1-5][0-9]|6[0-3])")


class ModelParallel(Section):
    """Which layers are on which device; each device computes the whole batch through its own layers, in turn."""

    devices: tuple[str, ...] = Field(..., description="of one process: [cpu:0, cpu:1], logical CPUs, or [gpu:0, gpu:1]")
    layers: dict[str, _INDEX] = Field(  # type: ignore[valid-type]
        ...,
        description="{layer: device}: a layer's name, or a pattern of names as `conv*`, and the place of a device in "
        "`devices`, from 0; a layer that is not named is on the first one",
    )

    @property
    def logical_cpus(self) -> int:
        """How many logical CPUs the devices need; 0 if they are all GPUs."""
        return _logical_cpus(self.devices)


class PipelineParallel(Section):
    """The network in stages, each on a device of its own, through which the parts of a batch go one behind the other.

    Source: Huang et al., GPipe, 2018, https://arxiv.org/abs/1811.06965; the order of a stage's work, one part forward
    and one back: Narayanan et al., PipeDream, 2019, https://arxiv.org/abs/1806.03377.
    """

    stages: Union[conint(ge=2, le=_MOST), tuple[tuple[str, ...], ...]] = Field(  # type: ignore[valid-type]
        ...,
        description="how many, cut where each has about as many floating-point operations; or the layers of each: "
        "[[conv1], [dense1]], where those that are not named go with the one before them",
    )
    microbatches: conint(ge=1, le=1000) = Field(  # type: ignore[valid-type]
        ..., description="parts of a batch"
    )
    devices: tuple[str, ...] = Field(
        default=(),
        description="one for each stage; none are GPUs, where there are as many, and else logical CPUs",
        operational=True,
    )

    @property
    def stage_count(self) -> int:
        """How many stages."""
        return self.stages if isinstance(self.stages, int) else len(self.stages)

    @property
    def logical_cpus(self) -> int:
        """How many logical CPUs the devices may need; 0 if they are all GPUs."""
        return _logical_cpus(self.devices) if self.devices else self.stage_count

    @property
    def ideal_bubble(self) -> float:
        """The part of a step's time in which a device waits, were all stages equal: (p - 1) / (m + p - 1)."""
        return (self.stage_count - 1) / (self.microbatches + self.stage_count - 1)


def _logical_cpus(devices: tuple[str, ...]) -> int:
    found = filter(None, map(DEVICE.fullmatch, devices))
    return max((int(each[2]) + 1 for each in found if each[1] == "cpu"), default=0)
