"""The `trainer.optimizer` section."""

from __future__ import annotations

from typing import Literal

from pydantic.v1 import Field, confloat, conint

from tfx_estimator.pipeline.config.section import Section


class Optimizer(Section):
    """Optimizer and learning-rate schedule of the built-in model_fn."""

    name: Literal["sgd", "momentum", "adam"] = Field(default="momentum", description="the optimizer")
    learning_rate: confloat(gt=0, le=1000) = Field(default=0.05, description="peak learning rate")  # type: ignore[valid-type]
    momentum: confloat(ge=0, lt=1) = Field(default=0.9, description="only for `momentum`")  # type: ignore[valid-type]
    schedule: Literal["constant", "cosine"] = Field(default="cosine", description="cosine: down to 0 over train_steps")
    warmup_steps: conint(ge=0, le=1_000_000_000) = Field(default=0, description="linear warm-up, in steps")  # type: ignore[valid-type]
    weight_decay: confloat(ge=0, le=1000) = Field(default=0.0, description="L2 on kernels, added to the loss")  # type: ignore[valid-type]
