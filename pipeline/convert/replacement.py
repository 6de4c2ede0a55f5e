"""The network that replaces a whole model_fn."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.components.trainer.task.user_code import find_function, is_model_fn
from tfx_estimator.model_fn.bridge.training_graph import Training
from tfx_estimator.model_fn.optim.schedules import learning_rate
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.optimizer import OF_OPTIMIZERS, OF_SCHEDULES, Optimizer
from tfx_estimator.pipeline.config.trainer import TrainerSection

_CLIPS = ("clip_norm", "global_clip_norm", "clip_value")


@dataclass(frozen=True)
class Replacement:
    """A network function, and a section with what the model_fn's graph does not contain; None takes the run's."""

    network: str
    declared: Optional[TrainerSection] = None

    def settings(self, old: Settings) -> Settings:
        """Returns the settings of the resumed training, still without its optimizer."""
        function = find_function(self.network)
        if is_model_fn(function):
            raise UserCodeError(
                f"--network: {self.network!r} is a whole model_fn",
                expected="a function that returns a tf.keras.Model with the layers of the model_fn",
                todo="write one, and name it",
            )
        arguments = inspect.signature(function).parameters
        takes_all = any(each.kind is each.VAR_KEYWORD for each in arguments.values())
        params = {name: value for name, value in old.section.params.items() if takes_all or name in arguments}
        changes: dict[str, Any] = {"model": self.network, "params": params}
        if self.declared is not None:
            changes["label_smoothing"] = self.declared.label_smoothing
            if self.declared.class_weights != "balanced":
                changes["class_weights"] = self.declared.class_weights
        return old.with_trainer(**changes)

    def with_optimizer(self, settings: Settings, training: Training) -> Settings:
        """Returns the settings with the optimizer of the training graph."""
        section = settings.section
        optimizer = (self.declared or section).optimizer
        return settings.with_trainer(optimizer=declared(training, optimizer, section.train_steps or 1).dict())


def require(model: str, replacement: Optional[Replacement]) -> None:
    """Refuses a whole model_fn without a replacement, and a network with one."""
    is_whole = is_model_fn(find_function(model))
    if is_whole and replacement is None:
        raise UserCodeError(
            f"trainer.model: {model!r} is a whole model_fn, without a Keras model",
            expected="a function that returns a tf.keras.Model with the same layers, as trainer.model takes it",
            todo="write one, and name it by --network module:function; or keep the graph, by --to graph",
        )
    if replacement is not None and not is_whole:
        raise UserCodeError(
            f"trainer.model: {model!r} is a network already",
            expected="no --network",
            todo="leave it out; map the names of renamed layers by --map",
        )


def declared(training: Training, section: Optimizer, train_steps: int) -> Optimizer:
    """Returns the declared optimizer that trains like a graph, with schedule, clipping and decay of a section."""
    name, values = training.optimizer["name"], section.dict()
    if section.name != name:
        values |= dict.fromkeys(OF_OPTIMIZERS)
    # The proof's step may not show it: small gradients are not clipped.
    if training.clips and all(values[each] is None for each in _CLIPS):
        raise UserCodeError(
            f"the model_fn clips its gradients by {', '.join(training.clips)}; its graph does not show the limit",
            expected="trainer.optimizer.clip_norm, global_clip_norm or clip_value, as in the model_fn",
            todo="write it into the declaration, and name that by --declaration",
        )
    if not training.rates:
        values |= {**dict.fromkeys(OF_SCHEDULES), "schedule": "constant", "warmup_steps": 0, "scaling": "none"}
    elif not all(
        np.isclose(float(learning_rate(section, train_steps, tf.constant(step))), rate, rtol=1e-4, atol=1e-9)
        for step, rate in training.rates.items()
    ):
        rates = list(training.rates.items())
        shown = ", ".join(f"{rate:.6g} at step {step}" for step, rate in rates[:: max(len(rates) // 4, 1)])
        raise UserCodeError(
            f"the learning rate of the model_fn follows a schedule that its graph does not name: {shown}",
            expected=f"a trainer.optimizer with name: {name} and a schedule of these rates",
            todo="write it into the declaration, and name that by --declaration",
        )
    return Optimizer.parse_obj({**values, **training.optimizer})
