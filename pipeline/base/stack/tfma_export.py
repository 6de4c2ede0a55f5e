"""Replaces `tfma.export`, which an Estimator's run_fn calls last, for example that of TFX's taxi template.

The TFMA of TFX 1.21 reads no EvalSavedModel, so none is written: the Evaluator uses a signature of the served model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Optional

from tfx_estimator.pipeline.base import log

NONE_WRITTEN = (
    "no EvalSavedModel is written, which TFMA of this stack does not read: "
    "the Evaluator uses a signature of the served model (docs/module-files.md)"
)

_log = log.get_logger("trainer")


class EvalInputReceiver(NamedTuple):
    """The result of an `eval_input_receiver_fn`."""

    features: Any
    labels: Any
    receiver_tensors: Any
    input_refs: Any = None
    iterator_initializer: Optional[str] = None


def build_parsing_eval_input_receiver_fn(
    feature_spec: dict[str, Any], label_key: Optional[str]
) -> Callable[[], EvalInputReceiver]:
    """Returns an `eval_input_receiver_fn` for serialized Examples."""
    import tensorflow as tf

    def eval_input_receiver_fn() -> EvalInputReceiver:
        examples = tf.compat.v1.placeholder(tf.string, [None], name="input_example_tensor")
        features = tf.io.parse_example(examples, feature_spec)
        return EvalInputReceiver(features, None if label_key is None else features[label_key], {"examples": examples})

    return eval_input_receiver_fn


def export_eval_savedmodel(*, export_dir_base: str, **_: Any) -> str:
    """Logs that nothing is written; returns the folder."""
    _log.warning("%s: %s", export_dir_base, NONE_WRITTEN)
    return export_dir_base
