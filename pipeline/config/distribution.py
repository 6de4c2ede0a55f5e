"""The `trainer.distribution` section: how training is distributed."""

from __future__ import annotations

from typing import Literal, Optional

from pydantic.v1 import Field, conint

from pipeline.config.section import Section


class Devices(Section):
    """How many devices of each kind a strategy uses; logical devices where a CPU is split."""

    cpu: Optional[conint(ge=1, le=64)] = Field(default=None, description="logical CPUs")  # type: ignore[valid-type]
    gpu: Optional[conint(ge=1, le=64)] = Field(default=None, description="GPUs")  # type: ignore[valid-type]


class Strategy(Section):
    """One tf.distribute strategy and its options."""

    strategy: Literal["one_device", "mirrored"] = Field(default="one_device", description="the tf.distribute strategy")
    devices: Devices = Field(default=Devices(), description="at most one kind; none is all GPUs, or the CPU")
    cross_device_ops: Literal["reduction_to_one_device", "hierarchical_copy"] = Field(
        # TensorFlow's own default hangs in an Estimator on CPU.
        default="reduction_to_one_device",
        description="how `mirrored` adds up gradients",
    )


class Distribution(Section):
    """The strategies of training and of evaluation."""

    train: Strategy = Strategy()
    eval: Strategy = Strategy()
