"""Names that TFDS, TFMA and Keras define, read from their files: importing them would take many seconds."""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

from tfx_estimator.pipeline.config.evaluator import BUILT_IN, SKILL
from tfx_estimator.pipeline.config.problems import nearest

_CLASS = re.compile(r"^class ([A-Z]\w*)\(", re.MULTILINE)
_REGISTERED = re.compile(r"^metric_types\.register_metric\(\s*(\w+)", re.MULTILINE)
_TFDS = "tensorflow_datasets"
# Metrics of labels that are not class numbers, which TFMA would compute wrongly without an error.
OF_OTHER_LABELS = re.compile(
    "(TopK)?Categorical|OneHot|MultiLabel|SetMatch|CosineSimilarity|ExactMatch|Accuracy|FBeta|(Mean)?IoU|Sum$"
    "|MeanRelativeError"
)
_MEANT = {"acc": BUILT_IN[0], "accuracy": BUILT_IN[0], "loss": BUILT_IN[1], "fbetascore": "F1Score"}


@functools.lru_cache(maxsize=1)
def tfds_names() -> set[str]:
    """Returns the names of TFDS's data sets, and of some other classes; none without TFDS."""
    # Newer ones have a folder of their own; TFDS derives the names of others from those of their classes.
    snake = (re.sub("(.)([A-Z][a-z0-9]+)", r"\1_\2", name) for name in _names(_TFDS, "*/**/*.py", _CLASS))
    found = {re.sub("([a-z0-9])([A-Z])", r"\1_\2", name).lower() for name in snake}
    return found.union(each.name for folder in _folders(_TFDS) for each in (folder / "datasets").iterdir())


@functools.lru_cache(maxsize=1)
def metric_names() -> list[str]:
    """Returns the names of the classes among which TFMA finds a metric, and of ours; none without TFMA."""
    of_tfma = list(_names("tensorflow_model_analysis", "**/metrics/**/*.py", _REGISTERED))
    keras = "tf_keras" if _folders("tf_keras") else "keras"
    return [*of_tfma, *_names(keras, "src/metrics/*.py", _CLASS), SKILL] if of_tfma else []


def nearest_metric(name: str) -> str:
    """Returns the metric of class numbers that a name may mean; empty if none is near, or it is one."""
    plain, known = name.lower().replace("_", ""), [each for each in metric_names() if not OF_OTHER_LABELS.match(each)]
    begun = (each for each in known if each.lower().startswith((plain, f"sparse{plain}")))
    return "" if name in known else _MEANT.get(plain) or next(begun, nearest(name, known))


def _names(package: str, pattern: str, defined: re.Pattern[str]) -> Iterator[str]:
    for file in (file for folder in _folders(package) for file in folder.glob(pattern)):
        if not file.name.endswith("_test.py"):
            yield from defined.findall(file.read_text(encoding="utf-8", errors="replace"))


def _folders(package: str) -> list[Path]:
    spec = importlib.util.find_spec(package)
    return list(map(Path, spec.submodule_search_locations or ())) if spec else []
