"""Which of a model's outputs holds the scores of the classes."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.base.errors import UserCodeError

pytestmark = pytest.mark.unit

FLOAT, STRING, INT = 1, 7, 9


def outputs(**kinds):
    """Makes outputs, each of (dtype, shape[, operation])."""
    from tfx_estimator.components.served_outputs import Output

    return [Output(name, *kind) for name, kind in sorted(kinds.items())]


OURS = {
    "class_ids": (INT, (None,)),
    "classes": (STRING, (None,)),
    "logits": (FLOAT, (None, 10), "BiasAdd"),
    "probabilities": (FLOAT, (None, 10), "Softmax"),
}
HEAD = {"classes": (STRING, (None, 10)), "scores": (FLOAT, (None, 10), "Softmax")}
BINARY = {"logistic": (FLOAT, (None, 1), "Sigmoid"), "class_ids": (INT, (None, 1))}


@pytest.mark.parametrize(
    ("kinds", "declared", "classes", "expected"),
    [
        pytest.param(OURS, None, 10, ("probabilities", False, False), id="ours"),
        pytest.param(OURS, "logits", 10, ("logits", True, False), id="ours, logits declared"),
        pytest.param(HEAD, None, 10, ("scores", False, False), id="head"),
        pytest.param({**BINARY, "probabilities": (FLOAT, (None, 2))}, None, 2, ("probabilities", False, False), id="2"),
        pytest.param(BINARY, None, 2, ("logistic", False, True), id="one score for two classes"),
        pytest.param(BINARY, None, 10, None, id="one score for ten classes"),
        pytest.param({"logits": (FLOAT, (None, 1))}, None, 2, ("logits", True, True), id="one logit"),
        pytest.param({"predictions": (FLOAT, None)}, None, 10, ("predictions", False, False), id="shape unknown"),
        pytest.param({"predictions": (INT, (None,)), "logits": (FLOAT, (None, 3))}, None, 3, ("logits", True, False)),
        pytest.param({"dense_1": (FLOAT, (None, 10)), "n": (INT, (None,))}, None, 10, ("dense_1", False, False)),
        pytest.param({"dense_1": (FLOAT, (None, 10), "BiasAdd")}, None, 10, ("dense_1", True, False), id="linear"),
        pytest.param({"scores": (FLOAT, (None, 64)), "a": (FLOAT, (None, 10))}, None, 10, ("a", False, False)),
        pytest.param({"a": (FLOAT, (None, 10)), "b": (FLOAT, (None, 10))}, "b", 10, ("b", False, False), id="declared"),
    ],
)
def test_the_scores_are_found_by_name_kind_and_shape(kinds, declared, classes, expected):
    from tfx_estimator.components.served_outputs import Scores, choose_scores

    if expected is None:
        with pytest.raises(UserCodeError, match="none of them fits"):
            choose_scores(outputs(**kinds), declared, classes)
    else:
        assert choose_scores(outputs(**kinds), declared, classes) == Scores(*expected)


@pytest.mark.parametrize(
    ("kinds", "declared", "text"),
    [
        (
            {"a": (FLOAT, (None, 10)), "b": (FLOAT, (None, 10))},
            None,
            "outputs are a, b: each of a, b may be",
        ),
        (HEAD, "probabilities", "the served outputs are classes, scores: there is no `probabilities`"),
        (OURS, "class_ids", "`class_ids` is int64, no scores"),
        ({"classes": (STRING, (None, 10))}, None, "the served outputs are classes: none of them fits"),
    ],
)
def test_what_cannot_be_told_is_asked_for(kinds, declared, text):
    from tfx_estimator.components.served_outputs import choose_scores

    with pytest.raises(UserCodeError, match=text) as error:
        choose_scores(outputs(**kinds), declared, 10)
    assert "evaluator.prediction_key" in error.value.todo
