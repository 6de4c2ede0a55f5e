"""The table of results on the terminal."""

from __future__ import annotations

import io
import shlex

import pytest

from tfx_estimator.pipeline.run.summary import Summary, Warned
from tfx_estimator.pipeline.run.table import _by_slice, print_table
from tfx_estimator.pipeline.run.terminal import make_console


def shown(summary: Summary) -> str:
    file = io.StringIO()
    print_table(make_console(file, 300), summary, "logs", asynchronous=False)
    return file.getvalue()


def test_slices_by_label_are_named_and_ordered():
    values = {"10": (0.5, 1), "9": (1.0, 2), "0": (0.25, 3)}
    names = tuple(f"class{index}" for index in range(11))
    assert _by_slice("label", values, names) == "class0 0.250, class9 1.000, class10 0.500"
    assert _by_slice("size", {"small": (0.5, 1), "2": (0.75, 1)}, ()) == "2 0.750, small 0.500"


RESTART = "worker-1 was killed at step 20; all tasks were started again"
GAINED = {"sparse_categorical_accuracy": 0.5, "sparse_categorical_accuracy_diff": 0.00125, "own_diff": 3.0}
FACTS = {"first_step": 0.0, "last_step": 60.0, "train_seconds": 9.0, "extra_steps": 2.0, "skipped_steps": 1234.0}


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"learning_rate": "0.1 (0.05 times 2 replicas)"}, "learning rate 0.1 (0.05 times 2 replicas)"),
        ({"stopped_early": "at step 80 of 100"}, "stopped early at step 80 of 100"),
        ({"exported": "step 40: the best accuracy"}, "exported      step 40: the best accuracy"),
        ({"blessed": True, "baseline_dropped": "gone"}, "baseline      none: gone\nblessed       yes"),
        ({"model_run": "/my runs/it's/6"}, "TensorBoard   tensorboard --logdir " + shlex.quote("/my runs/it's/6")),
        # A restart is not repeated as a warning.
        (
            {
                "warnings": [Warned("Trainer", RESTART), Warned("Trainer", "differs by 3.0 %")],
                "restarts": [f"{RESTART}, 7 s"],
            },
            "warnings      Trainer: differs by 3.0 %",
        ),
        (
            {"accuracy": 0.5, "evaluated": 10, "metrics": GAINED},
            "accuracy      0.5000 (+0.0013 against the latest blessed model) on 10 examples\nmetrics       own_diff 3",
        ),
        # Steps trained twice, and steps skipped.
        (
            {"training": FACTS},
            "training      steps 0 to 60 (2 more than declared) in 9 s (process start and export included), "
            "1,234 steps skipped as a gradient overflowed",
        ),
    ],
    ids=lambda each: "-".join(each) if isinstance(each, dict) else "",
)
def test_each_result_has_a_line_if_it_is_known(fields, line):
    assert f"\n{line}\n" in shown(Summary("own.yaml", **fields))
    assert line not in shown(Summary("own.yaml"))


def test_an_empty_result_has_no_line():
    assert not [line for line in shown(Summary("own.yaml")).splitlines() if line and not line[14:].strip()]


def test_each_metric_is_shown_once():
    metrics = {
        "sparse_categorical_accuracy": 0.5,
        "sparse_categorical_crossentropy": 1.25,
        "example_count": 10.0,
        "sparse_top_k_categorical_accuracy": 0.875,
        "true_positives": 7.0,
        "calibration": float("nan"),
    }
    text = shown(Summary("own.yaml", accuracy=0.5, loss=1.25, evaluated=10, metrics=metrics))
    assert "accuracy      0.5000 on 10 examples, mean loss 1.2500\n" in text
    assert "metrics       sparse_top_k_categorical_accuracy 0.8750, true_positives 7, calibration nan\n" in text


def test_a_table_has_its_own_metrics_in_place_of_accuracy_and_loss():
    measured = {"auc": 0.92684, "binary_crossentropy": 0.3502, "skill": 0.25, "example_count": 5000.0}
    metrics = {**measured, "binary_crossentropy_diff": 0.01, "calibration": 1.0125}
    hours = {"10": {"auc": 0.75}, "9": {"auc": float("nan")}, "none": {}}
    text = shown(Summary("own.yaml", evaluated=5000, metrics=metrics, slice_metrics={"hour": hours}))
    assert (
        "evaluation    AUC 0.9268, log loss 0.3502 (+0.0100 against the latest blessed model), skill 0.2500 on 5,000 "
        "examples\nmetrics       calibration 1.0125\nAUC by hour   9 nan, 10 0.750\n"
    ) in text
    assert "accuracy" not in text


def test_names_are_escaped_on_the_terminal():
    text = shown(
        Summary(
            "own.yaml",
            dataset="[bold]mnist[/bold] \x1b[31m\u202e",
            label_names=("a\nblessed       yes", "\x9b2J"),
            slices={"label": {"0": (1.0, 1), "1": (0.5, 2)}},
            reasons=["\x07"],
            blessed=False,
        )
    )
    assert r"data          [bold]mnist[/bold] \x1b[31m\u202e: " in text
    assert r"by label      a\nblessed       yes 1.000, \x9b2J 0.500" in text
    assert all(character.isprintable() for character in text.replace("\n", ""))


def test_the_summary_of_each_profile_is_printed_with_its_folder(tmp_path):
    folder = tmp_path / "chief-0"
    folder.mkdir()
    (folder / "summary.txt").write_text("profile of chief-0: 20 steps in 0.5 s\n   50%  MatMul\n")
    gone = str(tmp_path / "worker-0")
    text = shown(Summary("own.yaml", profiles={"chief-0": str(folder), "worker-0": gone}))
    assert "profile       profile of chief-0: 20 steps in 0.5 s\n" in text
    assert f"  {folder}\n" in text
    assert f"{gone} (deleted since)\n" in text


def test_the_tuned_values_are_printed():
    trial = {"status": "completed", "metrics": {}, "steps": 50, "seconds": 9.0, "reason": "", "parent": None}
    values = {"trainer.optimizer.learning_rate": 0.0073912, "trainer.optimizer.name": "adam"}
    tuning = {
        "objective": {"metric": "accuracy", "mode": "max"},
        "best": 2,
        "trials": [
            {**trial, "number": 1, "values": values, "status": "failed", "score": None},
            {**trial, "number": 2, "values": values, "score": 0.95},
        ],
    }
    text = shown(Summary("own.yaml", tuning=tuning))
    best = "learning_rate 0.007391, optimizer.name adam: accuracy 0.9500, trial 2 of 2, 1 of which failed"
    assert f"tuned         {best}\n" in text
