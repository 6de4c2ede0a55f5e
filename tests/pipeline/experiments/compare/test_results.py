"""Comparisons of known predictions: pairs, conclusions, the table, and the page."""

from __future__ import annotations

import io
import json
import re

import numpy as np
import pytest

from tfx_estimator.pipeline.base.errors import NotEqualError
from tfx_estimator.pipeline.commands.compare import require_equal
from tfx_estimator.pipeline.experiments.compare.page import Disagreement, show, to_html
from tfx_estimator.pipeline.experiments.compare.replicates import pair_up_seeds, score_seeds
from tfx_estimator.pipeline.experiments.compare.results import Comparison, Replicate, Result, pair_up, score
from tfx_estimator.pipeline.report.page import Missing
from tfx_estimator.pipeline.report.predictions import losses
from tfx_estimator.pipeline.report.training import Series, Training
from tfx_estimator.pipeline.run.terminal import make_console

EVIL = "<script>alert(1)</script>\x1b[31m"
CLASSES = ["cat", EVIL, "never seen"]
LABELS = np.array([0] * 60 + [1] * 40)


def certain(predicted: np.ndarray, sure: float = 0.9) -> np.ndarray:
    """Returns probabilities, `sure` for the predicted class."""
    found = np.full((len(predicted), len(CLASSES)), (1 - sure) / 2)
    found[np.arange(len(predicted)), predicted] = sure
    return found


def compared(*wrong: list[int], failures=None) -> Comparison:
    """Compares candidates that misclassify the listed examples."""
    names = [f"number {index}" for index in range(len(wrong))]
    predicted = []
    for each in wrong:
        found = LABELS.copy()
        found[each] = 1 - found[each]
        predicted.append(found)
    lost = [losses(LABELS, certain(each)) for each in predicted]
    results = []
    for name, each, loss in zip(names, predicted, lost):
        facts = {"last_step": 5.0, "cpu_micros_per_example": 12.5} if name == "number 0" else {}
        scores, metrics = score(LABELS, certain(each), loss), {"auc": 0.875} if facts else {"precision of cat": 0.5}
        results.append(Result(name, EVIL, *scores, "probabilities", 1 << 20, 1234, facts, metrics=metrics))
    pairs = pair_up(names, LABELS, predicted, lost, CLASSES)
    facts = {"data": "pets 1.0.0", "when": "today", "versions": {"machine": "mine"}}
    return Comparison(results, pairs, len(LABELS), "eval", facts, failures or {}, [EVIL])


def test_a_pair_is_compared_example_by_example():
    # Both wrong at 0 and 60; the first alone at 1 to 4 and 61; the second alone at 5.
    found = compared([0, 60, 1, 2, 3, 4, 61], [0, 60, 5])
    (pair,) = found.pairs
    assert (pair.both_right, pair.both_wrong) == (92, 2)
    assert (pair.mcnemar.only_first, pair.mcnemar.only_second) == (1, 5)
    assert pair.accuracy.value == pytest.approx(0.04)
    assert pair.agreement == pytest.approx(0.94)
    # A wrong prediction costs ln(0.9 / 0.05) more.
    assert pair.loss.value == pytest.approx(-0.04 * np.log(0.9 / 0.05))
    assert [each.label for each in pair.classes] == ["cat", EVIL]
    assert [(each.count, each.base, each.other) for each in pair.classes] == [(60, 55 / 60, 58 / 60), (40, 0.95, 0.975)]
    assert found.spread == pytest.approx(4)
    assert found.conclusions()[0].startswith(
        "Of these two models, on these examples, that of number 1 does not differ significantly from that "
        "of number 0 (+4.00 points): McNemar p = 0.22"
    )


def test_a_significant_difference_is_concluded():
    found = compared([], list(range(30)))
    assert found.conclusions() == [
        "Of these two models, on these examples, that of number 1 is 30.00 points worse than that of number 0: McNemar "
        "p = 1e-07, 95 % interval -38.66 to -20.16 points; loss higher (+0.8671).",
        # The test does not cover the randomness of training.
        "Each was trained once: the spread of one declaration's trainings over seeds is unknown, and may be as large. "
        "`compare --repeat 3` measures it.",
    ]


def test_equal_predictions_are_reported_as_equal():
    (conclusion,) = compared([0, 5], [0, 5]).conclusions()
    assert conclusion == "number 1 predicts the same class as number 0 for every example; mean loss +0.0e+00."


def test_tests_of_several_pairs_are_corrected():
    found = compared([0, 1, 2, 3, 4, 5, 6], [], [0])
    assert [pair.mcnemar.p for pair in found.pairs] == pytest.approx([2 / 128, 2 / 64])
    assert [pair.p for pair in found.pairs] == pytest.approx([4 / 128, 2 / 64])
    assert "corrected for 2 tests" in found.conclusions()[0]


def test_require_equal_fails_above_its_limit():
    found = compared([], [0], [1, 2])
    require_equal(found.spread, None, found.apart)
    require_equal(found.spread, 2.0, found.apart)
    with pytest.raises(NotEqualError) as caught:
        require_equal(found.spread, 1.9, found.apart)
    assert caught.value.exit_code == 8
    assert "2.00 points apart" in caught.value.what


def test_a_comparison_is_written_as_json():
    record = json.loads(json.dumps(compared([0], [1], failures={"third": "why"}).to_dict(), allow_nan=False))
    assert list(record["candidates"]) == ["number 0", "number 1"]
    assert record["pairs"]["number 1"]["mcnemar"] == {
        "only_first": 1,
        "only_second": 1,
        "p": 1.0,
        "statistic": None,
        "exact": True,
    }
    assert record["failures"] == {"third": "why"}


def test_the_table_is_escaped():
    out = io.StringIO()
    show(compared([0], [1], failures={EVIL: EVIL}), make_console(out, 140))
    printed = out.getvalue()
    assert "\x1b" not in printed
    assert re.search(r"accuracy +99\.00 % \(94\.55 to 99\.82\) +99\.00 %", printed)
    assert re.search(r"CPU µs/example +12\.5 +—", printed)
    assert re.search(r"auc +0\.8750 +—", printed)
    assert re.search(r"precision of cat +— +0\.5000", printed)
    assert "examples/s" not in printed
    assert "McNemar p " in printed


def test_the_page_is_complete_and_escaped():
    curves = {"loss": {"train": Series([1, 2], [2.0, 1.0]), "eval": Series([2], [1.5])}}
    trainings = {"number 0": Training(curves, [], []), "number 1": Missing(EVIL)}
    seen = [Disagreement(3, "data:image/png;base64,AA==", EVIL, [("cat", 0.9), (EVIL, 0.6)])]
    values = [{"trainer.seed": 1, "a": EVIL}, {"trainer.seed": 2, "a": EVIL}]
    page = to_html(compared([0], [1], failures={EVIL: EVIL}), trainings, values, seen)
    assert "<script" not in page
    assert "\x1b" not in page
    assert not re.search(r"(src|href)=\"(?!data:|#)", page)
    for part in ("result-table", "pair-table", "class-table", "disagreements", "settings-table"):
        assert page.count(f'id="{part}"') == 1
    assert page.count("<figure") == 1
    assert "trainer.seed" in page
    assert "today · mine" in page
    assert "Content-Security-Policy" in page


def repeated(*wrong: list[list[int]]) -> Comparison:
    """Compares candidates trained under several seeds; each training misclassifies the listed examples."""
    names = [f"number {index}" for index in range(len(wrong))]
    predicted, lost, results = [], [], []
    for name, trainings in zip(names, wrong):
        each = [np.where(np.isin(np.arange(len(LABELS)), found), 1 - LABELS, LABELS) for found in trainings]
        loss = np.stack([losses(LABELS, certain(one)) for one in each])
        replicates = [
            Replicate(7 + number, float((one == LABELS).mean()), float(lost.mean()), {}, {})
            for number, (one, lost) in enumerate(zip(each, loss))
        ]
        scores = score_seeds(LABELS, each, loss)
        results.append(Result(name, EVIL, *scores, 0.1, "probabilities", 1 << 20, 1234, replicates=replicates))
        predicted.append(each)
        lost.append(loss)
    pairs = pair_up_seeds(names, LABELS, predicted, lost, CLASSES)
    facts = {"data": "pets 1.0.0", "when": "today", "versions": {"machine": "mine"}}
    return Comparison(results, pairs, len(LABELS), "eval", facts, {}, [])


def test_each_of_several_seeds_is_shown_and_all_are_concluded_from():
    found = repeated([[0], [0, 60], [60]], [[0, 1, 60], [2], [0, 3]], [[*range(40)], [*range(45)], [*range(35)]])
    alike, worse = found.conclusions()
    assert alike.startswith(
        "No difference found between number 1 and number 0, trained 3 times each, under different seeds: accuracy "
    )
    assert worse.startswith("number 2 is 38.67 points worse and higher in mean loss than number 0, trained 3 times")
    assert "corrected for 4." in worse
    # The class `cat` lost accuracy, the other did not.
    assert [(each.label, round(100 * each.difference.value, 2)) for each in found.pairs[1].classes] == [
        ("cat", pytest.approx(-65.56)),
        (EVIL, pytest.approx(1.67)),
    ]
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    first = record["candidates"]["number 0"]
    assert [(each["seed"], each["accuracy"]) for each in first["replicates"]] == [(7, 0.99), (8, 0.98), (9, 0.99)]
    assert first["accuracy_spread"] == pytest.approx(np.std([0.99, 0.98, 0.99], ddof=1))
    assert first["accuracy"]["value"] == pytest.approx(0.98667, abs=1e-5)
    assert record["pairs"]["number 2"]["seeds"]["accuracy_p"] < record["pairs"]["number 2"]["p"] < 0.01
    assert "mcnemar" not in record["pairs"]["number 2"]

    out = io.StringIO()
    show(found, make_console(out, 140))
    assert re.search(r"training 2 +98\.00 %, 0\.\d+ \(seed 8\)", out.getvalue())
    assert re.search(r"spread of accuracy +0\.58 points +1\.00 points +5\.00 points", out.getvalue())
    page = to_html(found, {name: Missing("none") for name in ("number 0", "number 1", "number 2")}, [{}] * 3, [])
    assert "98.00 %, " in page
    assert "(seed 8)" in page
    assert "Welch" in page
    assert "McNemar" not in page


def test_the_same_trainings_twice_do_not_differ():
    (conclusion,) = repeated([[0], [1], [60]], [[0], [1], [60]]).conclusions()
    assert conclusion.startswith("No difference found between number 1 and number 0")
    assert "p = 1;" in conclusion
