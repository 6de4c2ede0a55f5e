"""The `trainer` section: what to train, for how long, in which batches."""

from __future__ import annotations

from typing import Any, Literal, Optional

from pydantic.v1 import Field, confloat, conint

from pipeline.config.distribution import Distribution
from pipeline.config.optimizer import Optimizer
from pipeline.config.section import Section


class TrainerSection(Section):
    """What to train. Exactly one of `model` and `module_file`."""

    path: Literal["estimator"] = "estimator"
    model: Optional[str] = Field(
        None, description="`package.module:function`: a network function, or a whole Estimator model_fn"
    )
    module_file: Optional[str] = Field(
        None, description="an existing TFX module file with `trainer_fn` or `run_fn`, unchanged"
    )
    params: dict[str, Any] = Field(default_factory=dict, description="further entries of your model_fn's `params`")
    train_steps: conint(ge=1)  # type: ignore[valid-type]
    eval_steps: Optional[conint(ge=1)] = Field(  # type: ignore[valid-type]
        None, description="batches per evaluation; null reads every example exactly once"
    )
    global_batch_size: conint(ge=1) = 128  # type: ignore[valid-type]
    eval_batch_size: conint(ge=1) = 500  # type: ignore[valid-type]
    optimizer: Optimizer = Optimizer()
    seed: int = Field(42, description="of initial weights and of the order of examples")
    shuffle_buffer: conint(ge=1) = Field(10_000, description="examples")  # type: ignore[valid-type]
    save_checkpoints_steps: Optional[conint(ge=1)] = Field(  # type: ignore[valid-type]
        None, description="steps; null is a tenth of train_steps, between 100 and 1,000"
    )
    keep_checkpoint_max: conint(ge=1) = 3  # type: ignore[valid-type]
    log_every_steps: conint(ge=1) = 100  # type: ignore[valid-type]
    start_timeout: confloat(gt=0) = Field(300.0, description="seconds until the first sign of progress")  # type: ignore[valid-type]
    stall_timeout: confloat(gt=0) = Field(600.0, description="seconds without any progress")  # type: ignore[valid-type]
    distribution: Distribution = Distribution()

    @property
    def checkpoint_steps(self) -> int:
        """Steps between two checkpoints, derived where the declaration leaves it open."""
        return self.save_checkpoints_steps or min(max(self.train_steps // 10, 100), 1000)
