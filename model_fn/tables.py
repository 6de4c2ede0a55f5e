"""The built-in models of tables: Estimator model_fns of the canned Estimators.

Words have a column each; all numbers share one, as each takes a fifth of a second whenever a graph is built.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.pipeline.config.task import REGRESSION

HIDDEN_UNITS = (64, 32)
_MOST_DIMENSIONS = 32
_Params = Mapping[str, Any]


def dnn(features: dict[str, tf.Tensor], labels: Any, mode: str, params: _Params, config: Any) -> Any:
    """A deep network, as `DNNClassifier` and `DNNRegressor`: numbers, and words by embeddings.

    Args:
        features: float32 or int64 [batch], as `by_schema` returns them.
        labels: [batch]: int64, or float32 of a regression.
        params: `task`, `num_classes`, `vocabularies` (categories by feature), `weight`, `optimizer`, `train_steps`; of
            a regression `label_mean` and `label_deviation`; and of `trainer.params`: `hidden_units`,
            `embedding_size`, `dropout`, `batch_norm`.

    Returns:
        The EstimatorSpec.
    """
    features, params = _in_scopes(features, params)
    features, numbers, words = _columns(features, params)
    deep = {"feature_columns": numbers + _embedded(words, params), **_deep(params)}
    return _spec("DNN", {**deep, "optimizer": _optimizer(params)}, features, labels, mode, params, config)


def linear(features: dict[str, tf.Tensor], labels: Any, mode: str, params: _Params, config: Any) -> Any:
    """A linear model, as `LinearClassifier` and `LinearRegressor`. See `dnn`."""
    features, params = _in_scopes(features, params)
    features, numbers, words = _columns(features, params)
    wide = {"feature_columns": numbers + words, "optimizer": _optimizer(params)}
    return _spec("Linear", wide, features, labels, mode, params, config)


def wide_deep(features: dict[str, tf.Tensor], labels: Any, mode: str, params: _Params, config: Any) -> Any:
    """Words linearly, by Ftrl, and a deep network of all, as `DNNLinearCombinedClassifier`. See `dnn`."""
    features, params = _in_scopes(features, params)
    features, numbers, words = _columns(features, params)
    deep = {f"dnn_{name}": value for name, value in _deep(params).items()}
    both = {
        "linear_feature_columns": words or numbers,
        "dnn_feature_columns": numbers + _embedded(words, params),
        "dnn_optimizer": _optimizer(params),
        # Also the canned Estimator's own prefix and default.
        **{name.replace("dnn_batch_norm", "batch_norm"): value for name, value in deep.items()},
    }
    return _spec("DNNLinearCombined", both, features, labels, mode, params, config)


def _columns(features: dict[str, tf.Tensor], params: _Params) -> tuple[dict[str, tf.Tensor], list[Any], list[Any]]:
    """Returns the features with numbers as one, the columns of numbers, and those of words."""
    column, sizes = tf.feature_column, params["vocabularies"]
    used = [name for name in sorted(features) if name != params["weight"]]
    words = [name for name in used if name in sizes]
    # Unknown words are in the last category.
    of_words = [
        column.categorical_column_with_identity(name, sizes[name], default_value=sizes[name] - 1) for name in words
    ]
    single = [name for name in used if name not in sizes and _is_single(features[name])]
    # What else a preprocessing_fn may return is left to TensorFlow: several numbers, sparse ones.
    others = [name for name in used if name not in (*words, *single)]
    of_numbers = [column.numeric_column(name, dtype=features[name].dtype) for name in others]
    if not single:
        return features, of_numbers, of_words
    values = [tf.reshape(tf.cast(features[name], tf.float32), [-1]) for name in single]
    features = {name: each for name, each in features.items() if name not in single}
    name = "numbers"
    while name in features:
        name += "_"
    # [batch, numbers]
    features[name] = tf.stack(values, 1)
    return features, [*of_numbers, column.numeric_column(name, len(single))], of_words


def _is_single(feature: Any) -> bool:
    """Returns whether a feature is one number an example."""
    return isinstance(feature, tf.Tensor) and feature.dtype != tf.string and feature.shape[1:].num_elements() == 1


def _in_scopes(features: dict[str, tf.Tensor], params: _Params) -> tuple[dict[str, tf.Tensor], _Params]:
    """Renames features whose names TensorFlow does not take for a variable scope."""
    names = scopes(features)
    sizes = {names[name]: size for name, size in params["vocabularies"].items() if name in names}
    weight = names.get(params["weight"], params["weight"])
    renamed = {names[name]: each for name, each in features.items()}
    return renamed, {**params, "vocabularies": sizes, "weight": weight}


def scopes(features: Iterable[str]) -> dict[str, str]:
    """Returns, for each feature, a name that TensorFlow takes for a variable scope, and no other feature has."""
    names: dict[str, str] = {}
    for name in sorted(features):
        scope = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
        is_free = re.match(r"[A-Za-z0-9.]", scope) and scope not in names.values()
        names[name] = scope if is_free else f"f{len(names)}{scope}"
    return names


def _embedded(words: list[Any], params: _Params) -> list[Any]:
    size = params.get("embedding_size")
    return [tf.feature_column.embedding_column(each, size or embedding_size_of(each.num_buckets)) for each in words]


def embedding_size_of(categories: int) -> int:
    """Returns the default size of an embedding."""
    return min(_MOST_DIMENSIONS, 2 * math.ceil(categories**0.25))


def _deep(params: _Params) -> dict[str, Any]:
    return {
        "hidden_units": list(params.get("hidden_units") or HIDDEN_UNITS),
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
    weight = params["weight"] or None
    mean, deviation = params.get("label_mean", 0.0), params.get("label_deviation", 1.0)
    if params["task"] == REGRESSION:

        def loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
            # The model learns standardised labels: prices, say, would take it millions of steps.
            return tf.math.squared_difference((labels - mean) / deviation, logits)

        head = tf.estimator.RegressionHead(
            weight_column=weight, loss_fn=loss, inverse_link_fn=lambda logits: logits * deviation + mean
        )
    elif params["num_classes"] > 2:
        head = tf.estimator.MultiClassHead(params["num_classes"], weight_column=weight)
    else:
        head = tf.estimator.BinaryClassHead(weight_column=weight)
    canned = getattr(tf.estimator, f"{kind}Estimator")(head, config=config, **arguments)
    return canned.model_fn(features, labels, mode, config)
