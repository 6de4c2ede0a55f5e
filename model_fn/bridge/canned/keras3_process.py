"""The process with Keras 3 that compares a written network. No import here may need Keras 2."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any, BinaryIO

from tfx_estimator.pipeline.base.files import write_json
from tfx_estimator.pipeline.base.installed import uncollected

with uncollected():
    from tfx_estimator.model_fn.bridge.canned.trial import compare


def main(trial_file: str, result_file: str) -> None:
    """Runs the trial of one file, and writes the result to another."""
    with open(trial_file, "rb") as file:
        trial = pickle.load(file)
        write_json(result_file, compare(trial, _until_none(file), _until_none(file)))


def _until_none(file: BinaryIO) -> Iterator[Any]:
    while (each := pickle.load(file)) is not None:
        yield each
