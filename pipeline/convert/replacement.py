"""The network that replaces a whole model_fn."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Optional

from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.components.trainer.task.user_code import find_function, is_model_fn
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.convert.training_graph import Training


@dataclass(frozen=True)
class Replacement:
    """A network function and its declaration.

    Args:
        network: `package.module:function`.
        declared: A section `trainer` with the model_fn's optimizer and loss options that its graph does not contain;
            None takes the run's.
    """

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
        declared = (self.declared or section).optimizer
        return settings.with_trainer(optimizer=training.declared(declared, section.train_steps or 1).dict())


def require(model: str, replacement: Optional[Replacement]) -> None:
    """Refuses a whole model_fn without a replacement, and a network with one."""
    is_whole = is_model_fn(find_function(model))
    if is_whole and replacement is None:
        raise UserCodeError(
            f"trainer.model: {model!r} is a whole model_fn, without a Keras model",
            expected="a function that returns a tf.keras.Model with the same layers, as trainer.model takes it",
            todo="write one, and name it by --network module:function; or keep the graph, by --keep-graph",
        )
    if replacement is not None and not is_whole:
        raise UserCodeError(
            f"trainer.model: {model!r} is a network already",
            expected="no --network",
            todo="leave it out; map the names of renamed layers by --map",
        )
