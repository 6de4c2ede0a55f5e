"""The Keras model of a declaration, built and compiled."""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from tfx_estimator.components.trainer import seeds
from tfx_estimator.components.trainer.task.user_code import find_function, is_model_fn
from tfx_estimator.model_fn.keras_classifier import KerasClassifier
from tfx_estimator.model_fn.keras_optimizers import make_keras_optimizer
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.errors import UserCodeError


@dataclass(frozen=True)
class ModelMaker:
    """Makes the model of a declaration, as often as asked: for training, for evaluation, for serving.

    Args:
        section: The declared trainer.
        num_classes: Of the data.
        image_shape: Of the transformed images: height, width, channels.
        dtype: Of these images.
    """

    section: TrainerSection
    num_classes: int
    image_shape: tuple[int, ...]
    dtype: tf.DType

    def make(self) -> KerasClassifier:
        """Builds the model, in the strategy's scope if there is one.

        Returns:
            The model, with all its variables, and without an optimizer.

        Raises:
            UserCodeError: `trainer.model` is no function that returns a Keras model.
        """
        section = self.section
        seeds.begin(section)
        function = find_function(section.model or "")
        if is_model_fn(function):
            raise UserCodeError(
                f"trainer.model: {section.model!r} is a whole Estimator model_fn",
                expected=f"a function that returns a tf.keras.Model, with trainer.path: {section.path}",
                todo="set trainer.path: estimator, or name a network function",
            )
        network = function(self.num_classes, **section.params)
        if not isinstance(network, tf.keras.Model):
            raise UserCodeError(
                f"trainer.model: {section.model!r} returned {type(network).__name__}",
                expected="a tf.keras.Model",
                todo="return the model from the function",
            )
        model = KerasClassifier(network, section)
        # Built before a checkpoint is read: every variable is there to be restored.
        network(tf.zeros([1, *self.image_shape], self.dtype))
        return model

    def make_compiled(self, steps_per_execution: int) -> KerasClassifier:
        """Builds and compiles the model, in the strategy's scope if there is one.

        Args:
            steps_per_execution: Of `compile`.

        Returns:
            The model, with all its variables and those of its optimizer.

        Raises:
            UserCodeError: As of `make`.
        """
        model = self.make()
        optimizer = make_keras_optimizer(self.section.optimizer, self.section.train_steps or 1)
        model.compile(optimizer=optimizer, steps_per_execution=steps_per_execution)
        _make_slots(optimizer, model.trainable_variables)
        return model


def _make_slots(optimizer: tf.keras.optimizers.legacy.Optimizer, variables: list[tf.Variable]) -> None:
    """Has a checkpoint hold all that it will, before the first step."""
    optimizer._create_all_weights(variables)
