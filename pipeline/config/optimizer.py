"""The `trainer.optimizer` section: optimizers, learning-rate schedules, and their options."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Optional

from tfx_estimator.pipeline.config.section import MAX_STEPS, Field, Limits, Section, number

OptimizerName = Literal[
    "sgd", "momentum", "rmsprop", "adam", "adamw", "adadelta", "adagrad", "adamax", "adafactor", "nadam", "ftrl", "lion"
]
ScheduleName = Literal[
    "constant", "cosine", "linear", "polynomial", "exponential", "inverse_time", "piecewise", "one_cycle"
]

# Marks a required option of a schedule.
REQUIRED = object()

# Option -> optimizer -> default; the defaults are Keras's.
OF_OPTIMIZERS: dict[str, dict[str, Any]] = {
    "momentum": {"momentum": 0.9, "sgd": 0.0, "rmsprop": 0.0},
    "nesterov": {"momentum": False, "sgd": False},
    "rho": {"rmsprop": 0.9, "adadelta": 0.95},
    "centered": {"rmsprop": False},
    "beta_1": {"adam": 0.9, "adamw": 0.9, "adamax": 0.9, "nadam": 0.9, "lion": 0.9},
    "beta_2": {"adam": 0.999, "adamw": 0.999, "adamax": 0.999, "nadam": 0.999, "lion": 0.99},
    "epsilon": dict.fromkeys(("rmsprop", "adam", "adamw", "adadelta", "adagrad", "adamax", "nadam"), 1e-7),
    "amsgrad": {"adam": False, "adamw": False},
    "initial_accumulator_value": {"adagrad": 0.1, "ftrl": 0.1},
    "beta_2_decay": {"adafactor": -0.8},
    "epsilon_1": {"adafactor": 1e-30},
    "epsilon_2": {"adafactor": 1e-3},
    "clip_threshold": {"adafactor": 1.0},
    "learning_rate_power": {"ftrl": -0.5},
    "l1_regularization_strength": {"ftrl": 0.0},
    "l2_regularization_strength": {"ftrl": 0.0},
    "l2_shrinkage_regularization_strength": {"ftrl": 0.0},
    "beta": {"ftrl": 0.0},
}

# Option -> schedule -> default; None is the number of steps after the warm-up.
OF_SCHEDULES: dict[str, dict[str, Any]] = {
    "decay_steps": {
        **dict.fromkeys(("cosine", "linear", "polynomial")),
        **dict.fromkeys(("exponential", "inverse_time"), REQUIRED),
    },
    "decay_rate": {"exponential": REQUIRED, "inverse_time": REQUIRED},
    "staircase": {"exponential": False, "inverse_time": False},
    "end_learning_rate": {"cosine": 0.0, "linear": 0.0, "polynomial": 0.0},
    "power": {"polynomial": REQUIRED},
    "boundaries": {"piecewise": REQUIRED},
    "values": {"piecewise": REQUIRED},
}

_MAX_RATE = 1000


def _describe(option: str) -> str:
    owners = {**OF_OPTIMIZERS, **OF_SCHEDULES}[option]
    defaults = [value for value in owners.values() if value is not REQUIRED and value is not None]
    if not defaults:
        return f"of {', '.join(owners)}"
    if len({*map(repr, defaults)}) == 1:
        return f"of {', '.join(owners)}; null is {_written(defaults[0])}"
    return "of " + ", ".join(f"{name} (null is {_written(value)})" for name, value in owners.items())


def _option(name: str, least: Optional[float] = None, most: Optional[float] = None, **more: Any) -> Any:
    return number(None, least, most, _describe(name), **more)


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}"


class Optimizer(Section):
    """Optimizer, learning-rate schedule and clipping of the built-in model_fn."""

    name: OptimizerName = Field(
        "momentum", "the optimizer: each of tf.keras.optimizers; momentum is tf.compat.v1.train.MomentumOptimizer"
    )
    learning_rate: float = number(0.05, None, _MAX_RATE, "peak learning rate", gt=0)
    schedule: ScheduleName = Field("cosine", "learning-rate schedule; cosine ends at 0")
    warmup_steps: int = number(0, 0, MAX_STEPS, "linear warm-up, in steps")
    scaling: Literal["none", "linear", "sqrt"] = Field(
        "none",
        "multiplies every learning rate by the number of replicas in sync, or by its square root; with several "
        "replicas the warm-up begins at the rate of one",
    )
    decay_steps: Optional[int] = number(
        None, 1, MAX_STEPS, f"{_describe('decay_steps')}; null, if not required, is all steps after the warm-up"
    )
    decay_rate: Optional[float] = _option("decay_rate", most=_MAX_RATE, gt=0)
    staircase: Optional[bool] = _option("staircase")
    end_learning_rate: Optional[float] = _option("end_learning_rate", 0, _MAX_RATE)
    power: Optional[float] = _option("power", None, 100, gt=0)
    boundaries: Optional[tuple[Annotated[int, Limits(1, le=MAX_STEPS)], ...]] = Field(
        None, "of piecewise: the last step of each rate but the last"
    )
    values: Optional[tuple[Annotated[float, Limits(0, le=_MAX_RATE)], ...]] = Field(
        None, "of piecewise: the rates, one more than boundaries"
    )
    weight_decay: float = number(0.0, 0, 1000, "L2 on kernels, added to the loss")
    decoupled_weight_decay: Optional[float] = number(
        None,
        0,
        1000,
        "Keras's weight_decay: subtracts this times the learning rate times the variable from every variable; "
        "null is 0.004 for adamw, else 0",
    )
    clip_norm: Optional[float] = number(None, None, _MAX_RATE, "largest norm of each gradient", gt=0)
    global_clip_norm: Optional[float] = number(None, None, _MAX_RATE, "largest norm of all gradients together", gt=0)
    clip_value: Optional[float] = number(None, None, _MAX_RATE, "largest absolute value in a gradient", gt=0)
    momentum: Optional[float] = _option("momentum", 0, lt=1)
    nesterov: Optional[bool] = _option("nesterov")
    rho: Optional[float] = _option("rho", 0, lt=1)
    centered: Optional[bool] = _option("centered")
    beta_1: Optional[float] = _option("beta_1", 0, lt=1)
    beta_2: Optional[float] = _option("beta_2", 0, lt=1)
    epsilon: Optional[float] = _option("epsilon", most=1, gt=0)
    amsgrad: Optional[bool] = _option("amsgrad")
    initial_accumulator_value: Optional[float] = _option("initial_accumulator_value", 0, 1_000_000)
    beta_2_decay: Optional[float] = _option("beta_2_decay", -10, None, lt=0)
    epsilon_1: Optional[float] = _option("epsilon_1", most=1, gt=0)
    epsilon_2: Optional[float] = _option("epsilon_2", most=1, gt=0)
    clip_threshold: Optional[float] = _option("clip_threshold", most=_MAX_RATE, gt=0)
    learning_rate_power: Optional[float] = _option("learning_rate_power", -10, 0)
    l1_regularization_strength: Optional[float] = _option("l1_regularization_strength", 0, 1_000_000)
    l2_regularization_strength: Optional[float] = _option("l2_regularization_strength", 0, 1_000_000)
    l2_shrinkage_regularization_strength: Optional[float] = _option(
        "l2_shrinkage_regularization_strength", 0, 1_000_000
    )
    beta: Optional[float] = _option("beta", 0, 1_000_000)

    def resolved(self) -> dict[str, Any]:
        """Returns all values, with the defaults of the chosen optimizer and schedule."""
        values = self.dict()
        for table, chosen in ((OF_OPTIMIZERS, self.name), (OF_SCHEDULES, self.schedule)):
            for option, owners in table.items():
                if values[option] is None and chosen in owners and owners[chosen] is not REQUIRED:
                    values[option] = owners[chosen]
        if values["decoupled_weight_decay"] is None:
            values["decoupled_weight_decay"] = 0.004 if self.name == "adamw" else 0.0
        return values

    def factor(self, replicas: int) -> float:
        """Returns the factor of every learning rate after the warm-up.

        Source of `linear`: Goyal et al., Accurate, Large Minibatch SGD, 2017, https://arxiv.org/abs/1706.02677; of
        `sqrt`: Krizhevsky, One Weird Trick, 2014, https://arxiv.org/abs/1404.5997.
        """
        return {"none": 1.0, "linear": float(replicas), "sqrt": math.sqrt(replicas)}[self.scaling]

    def describe_scaled(self, replicas: int) -> str:
        """Describes the scaled learning rate, for example `0.1 (0.05 times 2 replicas)`."""
        peak = max(self.values or (self.learning_rate,)) if self.schedule == "piecewise" else self.learning_rate
        of_root = "the root of " if self.scaling == "sqrt" else ""
        count = f"{of_root}{replicas} replica{'s' * (replicas != 1)}"
        return f"{peak * self.factor(replicas):g} ({peak:g} times {count})"

    @property
    def ends_with_training(self) -> bool:
        """True if the learning rate of a step depends on the total number of steps."""
        return self.schedule == "one_cycle" or (
            self.decay_steps is None and OF_SCHEDULES["decay_steps"].get(self.schedule, REQUIRED) is None
        )
