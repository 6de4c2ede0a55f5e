"""What `keep_best` and `early_stopping` take, and what is refused, with which words."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.best import EarlyStopping, KeepBest

pytestmark = pytest.mark.unit


def test_both_are_off_unless_declared_and_take_a_metric_s_name_for_a_section(write, good):
    write(good)
    trainer = load("mine.yaml").declaration.trainer
    assert trainer.keep_best is trainer.early_stopping is None
    write(f"{good}  keep_best: accuracy\n  early_stopping:\n")
    loaded = load("mine.yaml", ["trainer.early_stopping.patience=5"])
    assert loaded.declaration.trainer.keep_best == KeepBest(metric="accuracy")
    assert loaded.declaration.trainer.early_stopping == EarlyStopping(metric="average_loss", patience=5)
    assert loaded.origins["trainer.keep_best.metric"] == "mine.yaml:8"
    assert load("mine.yaml", ["trainer.keep_best=null"]).declaration.trainer.keep_best is None
    # An empty section is none, as null is.
    assert load("mine.yaml").declaration.trainer.early_stopping is None
    assert type(loaded.declaration).from_json(loaded.declaration.to_json()) == loaded.declaration


@pytest.mark.parametrize(
    ("metric", "better"),
    [
        ("loss", "min"),
        ("average_loss", "min"),
        ("rmse", "min"),
        ("mean_squared_error", "min"),
        ("perplexity", "min"),
        ("accuracy", "max"),
        ("top_5_acc", "max"),
        ("auc_precision_recall", "max"),
        ("f1", "max"),
        ("my_metric", None),
        ("accuracy_loss", None),
        ("horseshoe", None),
        ("threshold_at_recall", None),
        # Classes of TFMA and Keras.
        ("AUC", "max"),
        ("F1Score", "max"),
        ("SparseTopKCategoricalAccuracy", "max"),
        ("RootMeanSquaredError", "min"),
        ("ThresholdAtRecall", None),
    ],
)
def test_a_known_name_tells_which_way_it_is_better(metric, better):
    assert KeepBest(metric=metric).better == better
    assert KeepBest(metric=metric, mode="max").better == "max"
