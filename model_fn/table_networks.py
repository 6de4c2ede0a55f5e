"""The built-in models of tables as Keras networks: those of `model_fn.tables`, for the Keras paths."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.model_fn.layers import StatelessDropout
from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.model_fn.optim.update_rules import RULES, Rule
from tfx_estimator.model_fn.step.precision import output_dtype
from tfx_estimator.model_fn.tables import HIDDEN_UNITS, embedding_size_of, scopes
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.optimizer import Optimizer

# Name of the wide part's layers, and so of its variables.
_WIDE = "wide"
# The canned Estimators' own, of fewer than 40,000 columns.
_FTRL = Optimizer(name="ftrl", learning_rate=0.005)


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
            compute = tf.keras.mixed_precision.global_policy().compute_dtype
            net = tf.concat(self._numbers(inputs, compute) + self._embedded(inputs, embedding_size), axis=1)
            for index, count in enumerate(hidden_units or HIDDEN_UNITS):
                net = tf.keras.layers.Dense(count, "relu", name=f"hiddenlayer_{index}")(net)
                net = StatelessDropout(dropout)(net) if dropout else net
                net = tf.keras.layers.BatchNormalization(momentum=0.999)(net) if batch_norm else net
            logits.append(tf.keras.layers.Dense(units, dtype=output_dtype(), name="logits")(net))
        if self.kind != "dnn":
            logits.append(self._linear(inputs, units))
        outputs = logits[0] + logits[1] if logits[1:] else logits[0]
        return tf.keras.Model(inputs, tf.pad(outputs, [[0, 0], [1, 0]]) if num_classes == 2 else outputs)

    def optimizer(self, *args: Any) -> DeclaredOptimizer:
        """Returns the declared optimizer; for a wide part beside a deep one, Ftrl."""
        if self.kind != "wide_deep":
            return DeclaredOptimizer(*args)
        return WideDeepOptimizer(*args)

    def _words(self) -> list[str]:
        return [name for name in sorted(self.spec) if name in self.params["vocabularies"]]

    def _input(self, name: str) -> tf.Tensor:
        feature, is_word = self.spec[name], name in self._words()
        is_sparse = is_word and isinstance(feature, tf.io.VarLenFeature)
        if feature.dtype == tf.string or not (is_sparse or isinstance(feature, tf.io.FixedLenFeature)):
            raise UserCodeError(
                f"the preprocessing_fn returns the feature {name} as {type(feature).__name__} of {feature.dtype.name}",
                expected=f"for {self.kind}: as many numbers in each example, or categories that Transform numbered",
                todo="return it so; or leave out `transform`",
            )
        shape = [None] if is_sparse else feature.shape
        return tf.keras.Input(shape, dtype=feature.dtype, sparse=is_sparse, name=f"column_{self._scopes[name]}")

    @functools.cached_property
    def _scopes(self) -> dict[str, str]:
        return scopes(self.spec)

    def _numbers(self, inputs: Mapping[str, tf.Tensor], dtype: str) -> list[tf.Tensor]:
        """Returns the numbers as one matrix; an empty list without any."""
        found = [
            tf.cast(tf.reshape(inputs[name], [-1, math.prod(self.spec[name].shape)]), dtype)
            for name in sorted(self.spec)
            if name not in self._words()
        ]
        return [tf.concat(found, axis=1)] if found else []

    def _embedded(self, inputs: Mapping[str, tf.Tensor], size: Optional[int]) -> list[tf.Tensor]:
        found = []
        for name in self._words():
            count = self.params["vocabularies"][name]
            width = size or embedding_size_of(count)
            initial = tf.keras.initializers.TruncatedNormal(stddev=1 / math.sqrt(width))
            table = _Categories(count, width, initial, name=f"deep_{self._scopes[name]}", is_mean=True)
            found.append(table(inputs[name]))
        return found

    def _linear(self, inputs: Mapping[str, tf.Tensor], units: int) -> tf.Tensor:
        """Returns the linear part's logits, [batch, units]; all its weights begin at 0."""
        given: dict[str, Any] = {"dtype": output_dtype()}
        found = []
        for name in self._words():
            scope, count = f"{_WIDE}_of_{self._scopes[name]}", self.params["vocabularies"][name]
            found.append(_Categories(count, units, "zeros", name=scope, **given)(inputs[name]))
        # Beside a deep part it has words alone, if there are any.
        for numbers in self._numbers(inputs, output_dtype()) if self.kind == "linear" or not found else ():
            dense = tf.keras.layers.Dense(
                units, use_bias=False, kernel_initializer="zeros", name=f"{_WIDE}_numbers", **given
            )
            found.append(dense(numbers))
        return _Bias(name=f"{_WIDE}_bias", **given)(tf.add_n(found))


class _Bias(tf.keras.layers.Layer):
    """Adds a bias that begins at 0."""

    def build(self, shape: Any) -> None:
        self.bias = self.add_weight("bias", [shape[-1]], initializer="zeros")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs + self.bias


class _Categories(tf.keras.layers.Embedding):
    """The sum, or the mean, of the categories' rows of a table of weights, [batch, its width].

    As in TensorFlow's `categorical_column_with_identity`, what is no category is in the last one; -1 of a dense feature
    is a missing one.
    """

    def __init__(self, *args: Any, is_mean: bool = False, **more: Any) -> None:
        super().__init__(*args, **more)
        self._is_mean = is_mean

    def call(self, ids: Any) -> tf.Tensor:
        """Computes the layer; `ids` are int, dense or sparse: [batch], or [batch, categories]."""
        last = tf.constant(self.input_dim - 1, ids.dtype)
        if isinstance(ids, tf.SparseTensor):
            ids = tf.sparse.to_dense(ids.with_values(tf.where(ids.values < 0, last, ids.values)), default_value=-1)
        ids = tf.reshape(ids, [tf.shape(ids)[0], -1])
        rows = super().call(tf.where((ids < 0) | (ids > last), last, ids))
        is_there = tf.cast(ids != -1, rows.dtype)[..., tf.newaxis]
        total = tf.reduce_sum(rows * is_there, axis=1)
        return total / tf.maximum(tf.reduce_sum(is_there, axis=1), 1.0) if self._is_mean else total

    def compute_output_shape(self, shape: Any) -> Any:
        """See Keras."""
        return tf.TensorShape([shape[0], self.output_dim])


@tf.keras.utils.register_keras_serializable("tfx_estimator")
class WideDeepOptimizer(DeclaredOptimizer):
    """The declared optimizer for the deep part, and Ftrl for the wide one, as `DNNLinearCombinedClassifier`."""

    def update_of(self, variable: tf.Variable) -> tuple[Rule, Mapping[str, Any], Optional[float]]:
        """See `DeclaredOptimizer`."""
        if not variable.name.startswith(f"{_WIDE}_"):
            return super().update_of(variable)
        return RULES[_FTRL.name], _FTRL.resolved(), _FTRL.learning_rate
