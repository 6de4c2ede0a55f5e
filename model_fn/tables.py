"""The built-in models of tables: Estimator model_fns of the canned Estimators, with a column for each feature."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.pipeline.config.task import REGRESSION

_HIDDEN_UNITS = (64, 32)
_MOST_DIMENSIONS = 32
_Params = Mapping[str, Any]


def dnn(features: dict[str, tf.Tensor], labels: Any, mode: str, params: _Params, config: Any) -> Any:
    """A deep network, as `DNNClassifier` and `DNNRegressor`: numbers, and words by embeddings.

    Args:
        features: float32 or int64 [batch], as `by_schema` returns them.
        labels: [batch]: int64, or float32 of a regression.
        params: `task`, `num_classes`, `vocabularies` (sizes by feature), `weight`, `optimizer`, `train_steps`; and of
            `trainer.params`: `hidden_units`, `embedding_size`, `dropout`, `batch_norm`.

    Returns:
        The EstimatorSpec.
    """
    numbers, words = _columns(features, params)
    deep = {"feature_columns": numbers + _embedded(words, params), **_deep(params)}
    return _spec("DNN", {**deep, "optimizer": _optimizer(params)}, features, labels, mode, params, config)


def linear(features: dict[str, tf.Tensor], labels: Any, mode: str, params: _Params, config: Any) -> Any:
    """A linear model, as `LinearClassifier` and `LinearRegressor`. See `dnn`."""
    numbers, words = _columns(features, params)
    wide = {"feature_columns": numbers + words, "optimizer": _optimizer(params)}
    return _spec("Linear", wide, features, labels, mode, params, config)


def wide_deep(features: dict[str, tf.Tensor], labels: Any, mode: str, params: _Params, config: Any) -> Any:
    """Words linearly, by Ftrl, and a deep network of all, as `DNNLinearCombinedClassifier`. See `dnn`."""
    numbers, words = _columns(features, params)
    deep = {f"dnn_{name}": value for name, value in _deep(params).items()}
    both = {
        "linear_feature_columns": words or numbers,
        "dnn_feature_columns": numbers + _embedded(words, params),
        "dnn_optimizer": _optimizer(params),
        # Also the canned Estimator's own prefix and default.
        **{name.replace("dnn_batch_norm", "batch_norm"): value for name, value in deep.items()},
    }
    return _spec("DNNLinearCombined", both, features, labels, mode, params, config)


def _columns(features: dict[str, tf.Tensor], params: _Params) -> tuple[list[Any], list[Any]]:
    """Returns the columns of numbers, and those of words."""
    column, sizes = tf.feature_column, params["vocabularies"]
    used = [name for name in sorted(features) if name != params["weight"]]
    numbers = [column.numeric_column(name, dtype=features[name].dtype) for name in used if name not in sizes]
    return numbers, [column.categorical_column_with_identity(name, sizes[name]) for name in used if name in sizes]


def _embedded(words: list[Any], params: _Params) -> list[Any]:
    def size(column: Any) -> int:
        return params.get("embedding_size") or min(_MOST_DIMENSIONS, 2 * math.ceil(column.num_buckets**0.25))

    return [tf.feature_column.embedding_column(each, size(each)) for each in words]


def _deep(params: _Params) -> dict[str, Any]:
    return {
        "hidden_units": list(params.get("hidden_units") or _HIDDEN_UNITS),
        "dropout": params.get("dropout"),
        "batch_norm": bool(params.get("batch_norm")),
    }


def _optimizer(params: _Params) -> Callable[[], DeclaredOptimizer]:
    return lambda: DeclaredOptimizer(params["optimizer"], params["train_steps"])


def _spec(
    kind: str,
    arguments: dict[str, Any],
    features: dict[str, tf.Tensor],
    labels: Any,
    mode: str,
    params: _Params,
    config: Any,
) -> Any:
    """Calls the model_fn of a canned Estimator."""
    arguments = {**arguments, "weight_column": params["weight"] or None, "config": config}
    if params["task"] == REGRESSION:
        canned = getattr(tf.estimator, f"{kind}Regressor")(**arguments)
    else:
        canned = getattr(tf.estimator, f"{kind}Classifier")(n_classes=max(params["num_classes"], 2), **arguments)
    return canned.model_fn(features, labels, mode, config)
