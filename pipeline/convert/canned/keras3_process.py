"""The process of Keras 3: tries a written network out. Nothing that is imported here may need Keras 2."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any, BinaryIO

from tfx_estimator.pipeline.base.files import write_json
from tfx_estimator.pipeline.convert.canned.trial import compare


def main(asked_file: str, told_file: str) -> None:
    """Reads what is asked of one file, and writes what came of it into another."""
    with open(asked_file, "rb") as file:
        asked = pickle.load(file)
        write_json(told_file, compare(asked, _until_none(file), _until_none(file)))


def _until_none(file: BinaryIO) -> Iterator[Any]:
    while (each := pickle.load(file)) is not None:
        yield each
