"""What each optimizer and each schedule takes beside what all of them take, and its default."""

from __future__ import annotations

from typing import Any, Literal

OptimizerName = Literal[
    "sgd",
    "momentum",
    "rmsprop",
    "adam",
    "adamw",
    "adadelta",
    "adagrad",
    "adamax",
    "adafactor",
    "nadam",
    "ftrl",
    "lion",
]
ScheduleName = Literal[
    "constant", "cosine", "linear", "polynomial", "exponential", "inverse_time", "piecewise", "one_cycle"
]

# Marks an option without which a schedule has no meaning.
REQUIRED = object()

# Option -> optimizer -> default; the defaults are Keras's.
OF_OPTIMIZERS: dict[str, dict[str, Any]] = {
    "momentum": {"momentum": 0.9, "sgd": 0.0, "rmsprop": 0.0},
    "nesterov": {"sgd": False},
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

# Option -> schedule -> default; None is all steps after the warm-up.
OF_SCHEDULES: dict[str, dict[str, Any]] = {
    "decay_steps": {
        "cosine": None,
        "linear": None,
        "polynomial": None,
        "exponential": REQUIRED,
        "inverse_time": REQUIRED,
    },
    "decay_rate": {"exponential": REQUIRED, "inverse_time": REQUIRED},
    "staircase": {"exponential": False, "inverse_time": False},
    "end_learning_rate": {"cosine": 0.0, "linear": 0.0, "polynomial": 0.0},
    "power": {"polynomial": REQUIRED},
    "boundaries": {"piecewise": REQUIRED},
    "values": {"piecewise": REQUIRED},
}
