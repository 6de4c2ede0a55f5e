"""The sections `data` and `transform`: what to ingest, and how it is preprocessed in full passes."""

from __future__ import annotations

from typing import Annotated, Optional

from tfx_estimator.pipeline.config.builtin import expand
from tfx_estimator.pipeline.config.section import Field, Limits, Section, inner, number

_SHARDS = 8
_Side = Annotated[int, Limits(1, le=4096)]


class Splits(Section):
    """Which part of the data set trains, which evaluates meanwhile, and which at the end, as TFDS split expressions.

    See https://www.tensorflow.org/datasets/splits.
    """

    train: str = Field("train", "TFDS split expression, for example `train[:90%]`")
    eval: str = Field("test", "TFDS split expression, for example `train[90%:]` or `test`")
    test: Optional[str] = Field(
        None, "TFDS split expression: what the Evaluator reads, once, and training never; null is `eval`"
    )

    def declared(self) -> dict[str, str]:
        """Returns the expressions by name, of those that are given, in order."""
        return {name: expression for name, expression in self.dict().items() if expression is not None}

    @property
    def evaluated(self) -> str:
        """The split that the Evaluator reads."""
        return list(self.declared())[-1]


class DataSection(Section):
    """What to ingest, and into how many files."""

    dataset: str = Field(
        ...,
        "a TFDS image-classification name (`mnist`), `digits` (embedded), `package.module:Builder`, or a "
        "folder: a prepared TFDS data set, IDX files, CIFAR binary batches, or images by class; or a CSV or Parquet "
        "file of paths and labels",
    )
    version: Optional[str] = Field(None, "TFDS version; null is the newest that is there")
    data_dir: Optional[str] = Field(None, "TFDS data_dir; null is TFDS's own default")
    download: bool = Field(True, "may TFDS fetch and prepare what data_dir does not hold")
    splits: Splits = inner()
    shards: Optional[int] = number(
        None,
        1,
        1000,
        "files per split, at most one for each example; null is 8, or one for each worker that reads files",
    )
    image_size: Optional[tuple[_Side, _Side]] = Field(
        None, "[height, width] to resize to; required where the images differ in size"
    )

    def shards_for(self, readers: int = 1) -> int:
        """Returns the number of files per split, where each reader takes files of its own."""
        return self.shards or max(_SHARDS, readers)


class TransformSection(Section):
    """Which preprocessing_fn Transform runs."""

    preprocessing_fn: Optional[str] = Field(None, "`standardize`, which null is too; or `package.module:function`")
    module_file: Optional[str] = Field(None, "a TFX module file that defines `preprocessing_fn`, unchanged")

    @property
    def target(self) -> str:
        """The module file, or `package.module:function` of the preprocessing_fn."""
        return self.module_file or expand("transform.preprocessing_fn", self.preprocessing_fn or "standardize")
