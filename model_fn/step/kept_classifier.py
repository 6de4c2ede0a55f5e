"""Further training of an Estimator's kept graph, by its own loss, optimizer and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfx_estimator.model_fn.step.keras_classifier import LOSS
from tfx_estimator.model_fn.user_models.keras_model import identifying_feature, is_compiled

_FEATURES, _LABELS, _EVAL, _SERVE = "features", "labels", "eval", "serve"
_AVERAGE_LOSS = "average_loss"
# The served name of predictions that have none.
_PREDICTIONS = "predictions"


def is_kept(model: Any) -> bool:
    """True for the model of a kept training, as its network.py makes it."""
    return hasattr(type(model), "kept_step")


class KeptClassifier(tf.keras.Model):
    """Runs a kept training through the same steps as `KerasClassifier`.

    A checkpoint has its variables, by their names in the graph.
    """

    def __init__(self, own: Any) -> None:
        super().__init__(name="kept_classifier")
        # Not tracked: copies of other replicas, and the graphs of evaluation and serving, get the variables' values.
        self.__dict__["own"] = own
        self.kept = {each.name.partition(":")[0]: each for each in own.variables}
        # `train_step` has added up the replicas already.
        self.distribute_reduction_method = "first"

    def _validate_compile(self, *args: Any, **kwargs: Any) -> None:
        """Overrides Keras's, which refuses variables of one replica each."""

    def finalize_state(self) -> None:
        """Gives restored values to all copies; before a training's model is compiled, none is in use."""
        self.own.set_weights([each.numpy() for each in self.kept.values()])
        if not is_compiled(self):
            # Tracked, for its tables.
            self.served = self.own.current(_SERVE)

    def reset_metrics(self) -> None:
        """Begins an evaluation, unless this is the model of a training."""
        if not is_compiled(self):
            self.own.current(_EVAL).signatures["reset"]()

    def own_metrics(self) -> dict[str, float]:
        """Returns the Estimator's metrics since then, those that are a number; the loss of an average batch is one."""
        found = self.own.of_mode[_EVAL].signatures["result"]()
        found.pop(tf.compat.v1.GraphKeys.GLOBAL_STEP, None)
        scalars = {name: each for name, each in found.items() if each.shape.rank == 0}
        numbers = {name: float(each) for name, each in scalars.items() if each.dtype not in (tf.string, tf.bool)}
        return {_AVERAGE_LOSS: numbers[LOSS], **numbers}

    def call(self, features: dict[str, tf.Tensor], training: bool = False) -> Any:
        """Returns the predictions of the model_fn."""
        return self.own.predict_step((self._given(features),))

    def answers(self, features: dict[str, tf.Tensor], label_names: Sequence[str]) -> dict[str, tf.Tensor]:
        """Returns a served model's outputs: the predictions of the model_fn."""
        found = self(features)
        named = found if isinstance(found, dict) else {_PREDICTIONS: found}
        return {name: tf.identity(each) for name, each in named.items()}

    def train_step(self, data: tuple[dict[str, tf.Tensor], tf.Tensor]) -> dict[str, tf.Tensor]:
        """Trains one step; returns the `loss` of the global batch."""
        values = self.own.train_step(self._batch(data))
        # Keras resets it at each epoch, and there is only one here.
        self.own.mean_loss.reset_state()
        return values

    def test_step(self, data: tuple[dict[str, tf.Tensor], tf.Tensor]) -> dict[str, Any]:
        """Evaluates a batch; returns its `loss`, summed over this replica's examples, and their number, float64."""
        batch = self._batch(data)
        examples = tf.cast(tf.size(data[1]), tf.float64)
        # A mean over no examples would not be a number.
        loss = tf.cond(
            examples > 0,
            lambda: tf.cast(self.own.test_step(batch)[LOSS], tf.float64),
            lambda: tf.zeros([], tf.float64),
        )
        return {LOSS: loss * examples, "examples": examples}

    def _batch(self, data: tuple[dict[str, tf.Tensor], tf.Tensor]) -> tuple[Any, tf.Tensor]:
        features, labels = data
        if (spec := self.own.takes.get(_LABELS)) is not None:
            labels = tf.reshape(tf.cast(labels, spec.dtype), [-1, *spec.shape[1:]])
        return self._given(features), labels

    def _given(self, features: dict[str, tf.Tensor]) -> Any:
        """Returns the features as the input_fn did: a tensor, or a dict."""
        return identifying_feature(features) if _FEATURES in self.own.takes else dict(features)
