"""Why a model was not blessed: each missed threshold in one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tfx_estimator.data.features import LABEL

# The results call the built-in metrics by their names without this prefix.
_PREFIX = "sparse_categorical_"


def read_reasons(validation: Any, label_names: Sequence[str]) -> Iterator[str]:
    """Words what was missed.

    Args:
        validation: A tfma.ValidationResult.
        label_names: The classes, in the order of their labels.

    Yields:
        The reasons, those of all examples first.
    """
    told = sorted(validation.metric_validations_per_slice, key=lambda each: len(each.slice_key.single_slice_keys))
    for each in told:
        parts = [f"{key.column} {_value(key, label_names)}" for key in each.slice_key.single_slice_keys]
        where = f" of {' x '.join(parts)}" if parts else ""
        for failure in each.failures:
            yield _reason(failure, label_names, where)
    for missing in validation.missing_slices:
        values = [
            f"{name} {_title(name, value, label_names)}" for name, value in sorted(missing.feature_values.items())
        ]
        yield f"no example is of {' x '.join([*missing.feature_keys, *values])}, which a threshold is for"


def _value(key: Any, label_names: Sequence[str]) -> str:
    """The value that a slice has; a class by its name."""
    value = getattr(key, key.WhichOneof("kind"))
    return _title(key.column, value.decode() if isinstance(value, bytes) else str(value), label_names)


def _title(name: str, value: str, label_names: Sequence[str]) -> str:
    is_class = name == LABEL and value.isdigit() and int(value) < len(label_names)
    return label_names[int(value)] if is_class else value


def _reason(failure: Any, label_names: Sequence[str], where: str) -> str:
    key = failure.metric_key
    name = key.name.removeprefix(_PREFIX)
    if key.sub_key.HasField("class_id"):
        label = key.sub_key.class_id.value
        name += f" of class {label_names[label] if label < len(label_names) else label}"
    elif key.sub_key.HasField("top_k"):
        name += f" at top {key.sub_key.top_k.value}"
    name += where
    threshold, value = failure.metric_threshold, failure.metric_value.double_value.value
    if not failure.metric_value.WhichOneof("type"):
        return f"{name} was not measured"
    if threshold.HasField("value_threshold"):
        limits = threshold.value_threshold
        # NaN is neither above nor below a limit.
        if limits.HasField("upper_bound") and value > limits.upper_bound.value:
            return f"{name} {value:.4f} is above {limits.upper_bound.value:.4f}"
        if limits.HasField("lower_bound"):
            return f"{name} {value:.4f} is below {limits.lower_bound.value:.4f}"
        return f"{name} {value:.4f} is not at most {limits.upper_bound.value:.4f}"
    change = threshold.change_threshold
    allowed = [f"{change.absolute.value:+.4f}"] if change.HasField("absolute") else []
    allowed += [f"{100 * change.relative.value:+.2f} %"] if change.HasField("relative") else []
    return f"{name} changed by {value:+.4f} against the latest blessed model, allowed is {' and '.join(allowed)}"
