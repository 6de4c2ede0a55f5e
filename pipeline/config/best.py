"""The sections `trainer.keep_best` and `trainer.early_stopping`, which act on evaluations during training."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, Optional

from tfx_estimator.pipeline.config.section import MAX_STEPS, Field, Section, number, shorthand
from tfx_estimator.pipeline.config.task import BINARY, CLASSES, REGRESSION

# Evaluation metrics of a network that is not compiled, such as a built-in one.
METRICS = ("accuracy", "average_loss", "loss")
# Of tables, by the task.
METRICS_OF_TABLES = {BINARY: ("auc", *METRICS), CLASSES: METRICS, REGRESSION: ("average_loss", "loss")}
# Of two classes, TensorFlow's canned Estimators report these as well.
METRICS_OF_CANNED = ("auc_precision_recall", "precision", "recall")
# The short form of such a section: the metric.
BY_METRIC: Mapping[str, Any] = {"short_form": {"type": "string", "minLength": 1}, "expand": shorthand("metric", str)}
_LESS = re.compile(
    r"loss|error|entropy|perplexity|divergence|hinge|false_?(positive|negative)|miss_?rate|fall_?out"
    r"|(^|_)(rmse|mse|mae|mape|msle|fpr|fnr)($|_)"
)
_MORE = re.compile(
    r"acc(uracy)?($|_)|auc|precision|recall|(^|_)f1|sensitivity|specificity|cosine_similarity|matthews|(^|_)r2"
    r"|true_?(positive|negative)|(^|_)(tpr|tnr|ppv|npv|skill)($|_)"
)


def better(metric: str) -> Optional[str]:
    """Returns `max` or `min`, inferred from a metric's name; None if unclear."""
    name = metric.lower()
    less, more = bool(_LESS.search(name)), bool(_MORE.search(name))
    return None if less == more or "threshold" in name else "min" if less else "max"


class _Watched(Section):
    """A metric of the evaluations, and whether more or less of it is better."""

    metric: str
    mode: Optional[Literal["max", "min"]] = Field(None, "whether more or less is better; null infers it from the name")

    @property
    def better(self) -> Optional[str]:
        """`max` or `min`, declared or inferred; None if unclear."""
        return self.mode or better(self.metric)


class KeepBest(_Watched):
    """Exports the best of the evaluated checkpoints."""

    metric: str = Field(..., "a metric of your evaluation: accuracy, average_loss and loss of a network", min_length=1)


class EarlyStopping(_Watched):
    """Stops training before its last step, like Keras's EarlyStopping.

    Source: https://www.tensorflow.org/api_docs/python/tf/keras/callbacks/EarlyStopping.
    """

    metric: str = Field("average_loss", "a metric of your evaluation", min_length=1)
    patience: int = number(3, 1, 1_000_000, "evaluations without improvement after which training stops")
    min_delta: float = number(0.0, 0, 1e12, "smallest change that counts as an improvement")
    min_steps: int = number(0, 0, MAX_STEPS, "evaluations of earlier steps are ignored")
