"""The page of a comparison: one file that needs no other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfx_estimator.pipeline.compare.results import Comparison
from tfx_estimator.pipeline.compare.table import pair_rows, result_rows, show_points
from tfx_estimator.pipeline.config.yaml_text import inline
from tfx_estimator.pipeline.report.comparison import chart_runs, differences
from tfx_estimator.pipeline.report.events import Training
from tfx_estimator.pipeline.report.missing import Missing
from tfx_estimator.pipeline.report.page import render
from tfx_estimator.pipeline.report.plots import COLOURS

if TYPE_CHECKING:  # a page of what is known needs no TensorFlow
    from tfx_estimator.pipeline.compare.answers import Answers
    from tfx_estimator.pipeline.report.examples import DataSet

MOST_DISAGREED = 20


@dataclass(frozen=True)
class Disagreement:
    """An example that the candidates do not take for the same class.

    Args:
        position: In the split, in the order of the first candidate's files.
        predicted: Of each candidate its class, and the probability that it gave it.
    """

    position: int
    image: str
    truth: str
    predicted: list[tuple[str, float]]


def to_html(
    comparison: Comparison,
    trainings: Mapping[str, Training | Missing],
    values: Sequence[Mapping[str, Any]],
    disagreements: Sequence[Disagreement] | Missing,
) -> str:
    """Writes the page.

    Args:
        trainings: Of each candidate its curves.
        values: Of each candidate what was declared, by dotted path.

    Returns:
        HTML that refers to nothing outside of it.
    """
    return render(
        "compare.html.j2",
        comparison=comparison,
        names=[each.name for each in comparison.results],
        results=result_rows(comparison),
        pairs=pair_rows(comparison),
        classes=_class_rows(comparison),
        charts=chart_runs(trainings),
        colours=COLOURS,
        without=[(name, each.why) for name, each in trainings.items() if isinstance(each, Missing)],
        settings=differences([{key: inline(value) for key, value in each.items()} for each in values]),
        disagreements=disagreements,
    )


def find_disagreements(data: DataSet, split: str, answers: Sequence[Answers]) -> list[Disagreement]:
    """Finds the examples on which the candidates' probabilities lie furthest apart, the furthest first.

    Args:
        data: The examples of the first candidate.
        answers: Of each candidate, in the order of those.
    """
    from tfx_estimator.pipeline.report.pictures import to_data_uri

    predicted = [each.predicted for each in answers]
    base = answers[0].probabilities
    # Total variation distance.
    apart = np.max([np.abs(each.probabilities - base).sum(axis=1) / 2 for each in answers[1:]], axis=0)
    differ = np.flatnonzero(np.any([each != predicted[0] for each in predicted[1:]], axis=0))
    chosen = differ[np.argsort(-apart[differ], kind="stable")][:MOST_DISAGREED]
    if not len(chosen):
        return []
    images = _images(data, split, {int(position) for position in chosen})
    return [
        Disagreement(
            int(position),
            to_data_uri(images[int(position)]),
            data.names[answers[0].labels[position]],
            [(data.names[each.predicted[position]], float(each.probabilities[position].max())) for each in answers],
        )
        for position in chosen
    ]


def _images(data: DataSet, split: str, positions: set[int]) -> dict[int, np.ndarray]:
    from tfx_estimator.pipeline.report.examples import batches, to_image

    found: dict[int, np.ndarray] = {}
    seen = 0
    for _, raw, labels in batches(data, split, max(positions) + 1):
        found.update({place: to_image(data, raw[place - seen]) for place in positions if 0 <= place - seen < len(raw)})
        seen += len(labels)
    return found


def _class_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Of each class: `label`, `count`, the first candidate's recall, and of each other one recall and difference."""
    if not comparison.pairs:
        return []
    return [
        {
            "label": first.label,
            "count": first.count,
            "base": first.base,
            "others": [
                (pair.classes[index].other, show_points(pair.classes[index].difference), _sign(pair.classes[index]))
                for pair in comparison.pairs
            ],
        }
        for index, first in enumerate(comparison.pairs[0].classes)
    ]


def _sign(found: Any) -> str:
    """`better` or `worse` where 0 is not in the interval."""
    if found.difference.holds(0):
        return ""
    return "better" if found.difference.value > 0 else "worse"
