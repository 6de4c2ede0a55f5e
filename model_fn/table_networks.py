"""The built-in models of tables as Keras networks: those of `model_fn.tables`, for the Keras paths."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.model_fn.optim.update_rules import RULES, Rule
from tfx_estimator.model_fn.tables import HIDDEN_UNITS, embedding_size_of
from tfx_estimator.pipeline.config.optimizer import Optimizer

# Name of the wide part's layers, and so of its variables.
_WIDE = "wide"
# The canned Estimators' own limit of Ftrl's rate.
_MOST_RATE = 0.005
_FTRL = Optimizer(name="ftrl")


@dataclass(frozen=True)
class TableNetwork:
    """Makes the network of a built-in model, and its optimizer.

    Args:
        kind: `dnn`, `linear` or `wide_deep`.
        spec: The features' spec: a number or several; a category, several, or any number of them.
        params: `vocabularies` (categories by feature), and `num_classes`: 1 of a regression.
    """

    kind: str
    spec: Mapping[str, Any]
    params: Mapping[str, Any]

    def network(
        self,
        num_classes: int,
        hidden_units: Optional[list[int]] = None,
        embedding_size: Optional[int] = None,
        dropout: Optional[float] = None,
        batch_norm: bool = False,
    ) -> tf.keras.Model:
        """Returns the network: features by name to logits, [batch, num_classes], or to a number, [batch, 1]."""
        inputs = {name: self._input(name) for name in sorted(self.spec)}
        # As the canned Estimators do, one logit tells two classes apart.
        units = 1 if num_classes == 2 else num_classes
        logits = []
        if self.kind != "linear":
            net = _joined(self._numbers(inputs) + self._embedded(inputs, embedding_size))
            for index, count in enumerate(hidden_units or HIDDEN_UNITS):
                net = tf.keras.layers.Dense(count, "relu", name=f"hiddenlayer_{index}")(net)
                net = tf.keras.layers.Dropout(dropout)(net) if dropout else net
                net = tf.keras.layers.BatchNormalization(momentum=0.999)(net) if batch_norm else net
            logits.append(tf.keras.layers.Dense(units, name="logits")(net))
        if self.kind != "dnn":
            logits.append(self._linear(inputs, units))
        outputs = logits[0] + logits[1] if logits[1:] else logits[0]
        return tf.keras.Model(inputs, tf.pad(outputs, [[0, 0], [1, 0]]) if num_classes == 2 else outputs)

    def optimizer(self, *args: Any) -> DeclaredOptimizer:
        """Returns the declared optimizer; for a wide part beside a deep one, Ftrl."""
        if self.kind != "wide_deep":
            return DeclaredOptimizer(*args)
        return WideDeepOptimizer(*args, wide_rate=min(_MOST_RATE, 1 / math.sqrt(len(self._wide()))))

    def _words(self) -> list[str]:
        return [name for name in sorted(self.spec) if name in self.params["vocabularies"]]

    def _wide(self) -> list[str]:
        """Returns the features of the wide part: beside a deep one, words, if there are any."""
        return (self._words() if self.kind == "wide_deep" else []) or sorted(self.spec)

    def _input(self, name: str) -> tf.Tensor:
        feature = self.spec[name]
        is_sparse = isinstance(feature, tf.io.VarLenFeature)
        shape = [None] if is_sparse else feature.shape
        return tf.keras.Input(shape, dtype=feature.dtype, sparse=is_sparse, name=_scope(name))

    def _numbers(self, inputs: Mapping[str, tf.Tensor]) -> list[tf.Tensor]:
        """Returns the numbers, each float32 [batch, its size]."""
        found = [(self.spec[name], inputs[name]) for name in sorted(self.spec) if name not in self._words()]
        return [tf.cast(tf.reshape(each, [-1, math.prod(spec.shape)]), tf.float32) for spec, each in found]

    def _embedded(self, inputs: Mapping[str, tf.Tensor], size: Optional[int]) -> list[tf.Tensor]:
        found = []
        for name in self._words():
            count = self.params["vocabularies"][name]
            width = size or embedding_size_of(count)
            initial = tf.keras.initializers.TruncatedNormal(stddev=1 / math.sqrt(width))
            found.append(_rows(inputs[name], count, width, initial, f"deep_{_scope(name)}", is_mean=True))
        return found

    def _linear(self, inputs: Mapping[str, tf.Tensor], units: int) -> tf.Tensor:
        """Returns the wide part's logits, [batch, units]; all its weights begin at 0."""
        wide = self._wide()
        numbers = self._numbers(inputs) if set(wide) - set(self._words()) else []
        counts = self.params["vocabularies"]
        found = [
            _rows(inputs[name], counts[name], units, "zeros", f"{_WIDE}_{_scope(name)}")
            for name in self._words()
            if name in wide
        ]
        if numbers:
            dense = tf.keras.layers.Dense(units, use_bias=False, kernel_initializer="zeros", name=f"{_WIDE}_numbers")
            found.append(dense(_joined(numbers)))
        return _Bias(name=f"{_WIDE}_bias")(tf.add_n(found))


class _Bias(tf.keras.layers.Layer):
    """Adds a bias that begins at 0."""

    def build(self, shape: Any) -> None:
        self.bias = self.add_weight("bias", [shape[-1]], initializer="zeros")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs + self.bias


def _rows(ids: Any, count: int, width: int, initial: Any, name: str, is_mean: bool = False) -> tf.Tensor:
    """Returns the sum, or the mean, of the categories' rows of a table of weights, [batch, width].

    Args:
        ids: int, dense or sparse: [batch], or [batch, categories]. One below 0 is missing, one beyond the last unknown:
            the last one, as in TensorFlow's `categorical_column_with_identity`.
    """
    dense = tf.sparse.to_dense(ids, default_value=-1) if isinstance(ids.type_spec, tf.SparseTensorSpec) else ids
    several = tf.reshape(dense, [tf.shape(dense)[0], -1]) if dense.shape.rank != 1 else dense[:, tf.newaxis]
    is_there = tf.cast(several >= 0, tf.float32)[..., tf.newaxis]
    table = tf.keras.layers.Embedding(count, width, embeddings_initializer=initial, name=name)
    total = tf.reduce_sum(table(tf.clip_by_value(several, 0, count - 1)) * is_there, axis=1)
    return total / tf.maximum(tf.reduce_sum(is_there, axis=1), 1.0) if is_mean else total


def _joined(found: list[tf.Tensor]) -> tf.Tensor:
    return found[0] if len(found) == 1 else tf.concat(found, axis=1)


def _scope(name: str) -> str:
    """Returns a feature's name as part of a layer's."""
    return re.sub(r"[^A-Za-z0-9_.]", "_", name)


@tf.keras.utils.register_keras_serializable("tfx_estimator")
class WideDeepOptimizer(DeclaredOptimizer):
    """The declared optimizer for the deep part, and Ftrl for the wide one, as `DNNLinearCombinedClassifier`.

    Args:
        wide_rate: Ftrl's learning rate.
    """

    def __init__(self, *args: Any, wide_rate: float, **more: Any) -> None:
        super().__init__(*args, **more)
        self._wide_rate = wide_rate

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "wide_rate": self._wide_rate}

    def update_of(self, variable: tf.Variable) -> tuple[Rule, Mapping[str, Any], Optional[float]]:
        """See `DeclaredOptimizer`."""
        if not variable.name.startswith(f"{_WIDE}_"):
            return super().update_of(variable)
        return RULES[_FTRL.name], _FTRL.resolved(), self._wide_rate
