"""The model card: what is known of a model, as tables of Markdown."""

from __future__ import annotations

import yaml

from tfx_estimator.pipeline.report.model_card import write_card
from tfx_estimator.pipeline.report.source import Run

DECLARED = """\
name: pets                      # pets.yaml:1
data:
  csv: rows.csv                 # pets.yaml:3
  label: kind                   # pets.yaml:4
  weight: null                  # default
trainer:
  optimizer:
    name: adam                  # default
    learning_rate: 0.02         # --set
  train_steps: 50               # default, derived: 50
evaluator:
  slices: [label]               # pets.yaml:9
"""
SUMMARY = {
    "started": "2026-11-22T01:00:00+00:00",
    "dataset": "rows.csv",
    "examples": {"train": 1200, "eval": 300},
    "training": {"first_step": 0.0, "last_step": 50.0},
    "evaluated": 300,
    "evaluated_split": "eval",
    "blessed": False,
    "reasons": ["accuracy dropped by 0.125"],
    "label_names": ["cat|<b>", "dog"],
    "metrics": {
        "sparse_categorical_accuracy": 0.5,
        "sparse_categorical_accuracy_diff": -0.125,
        "example_count": 300.0,
        "auc": None,
        "auc_diff": None,
    },
    "slice_metrics": {"label": {"0": {"example_count": 100.0}, "1": {"example_count": 200.0}}},
    "versions": {"stack": "tfx1.15", "Python": "3.10.13"},
}


def card_of(tmp_path, summary) -> str:
    write_card(Run(str(tmp_path), DECLARED, summary, {"name": "pets"}), str(tmp_path / "card.md"))
    return (tmp_path / "card.md").read_text()


def tables_of(card: str) -> list[list[list[str]]]:
    """Returns the rows of each table, its header first."""
    tables = [[]]
    for line in card.splitlines():
        if line.startswith("|"):
            tables[-1].append([cell.strip() for cell in line.strip("|").split(" | ")])
        elif tables[-1]:
            tables.append([])
    return [[rows[0], *rows[2:]] for rows in tables if rows]


def test_it_has_data_metrics_slices_baseline_and_stack(tmp_path):
    card = card_of(tmp_path, SUMMARY)
    data, metrics, slices, versions = tables_of(card)
    assert data[1:] == [["train", "1,200"], ["eval", "300"]]
    assert metrics == [
        ["metric", "value", "latest blessed", "change"],
        ["accuracy", "0.5000", "0.6250", "-0.1250"],
        ["auc", "nan", "nan", "nan"],
    ]
    assert slices == [["label", "example_count"], [r"cat\|&lt;b>", "100"], ["dog", "200"]]
    assert ["Python", "3.10.13"] in versions
    assert "A model that is not blessed, of the run" in card
    assert "Not blessed: accuracy dropped by 0.125." in card


def test_its_declaration_is_what_was_declared(tmp_path):
    declared = card_of(tmp_path, SUMMARY).partition("````yaml\n")[2].partition("````")[0]
    assert yaml.safe_load(declared) == {
        "name": "pets",
        "data": {"csv": "rows.csv", "label": "kind"},
        "trainer": {"optimizer": {"learning_rate": 0.02}},
        "evaluator": {"slices": ["label"]},
    }


def test_a_first_model_has_no_baseline(tmp_path):
    metrics = {"auc": 0.75}
    card = card_of(tmp_path, {**SUMMARY, "blessed": True, "reasons": [], "metrics": metrics, "slice_metrics": {}})
    assert tables_of(card)[1] == [["metric", "value"], ["auc", "0.7500"]]
    assert "There was no earlier blessed model." in card
