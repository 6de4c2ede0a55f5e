"""The sections `data` and `transform`: what to ingest, and how it is preprocessed in full passes."""

from __future__ import annotations

from typing import Optional

from pydantic.v1 import Field, conint

from tfx_estimator.pipeline.config.builtin import expand
from tfx_estimator.pipeline.config.section import Section

_SHARDS = 8


class Splits(Section):
    """Which part of the data set trains, which evaluates meanwhile, and which at the end, as TFDS split expressions.

    See https://www.tensorflow.org/datasets/splits.
    """

    train: str = Field(default="train", description="TFDS split expression, for example `train[:90%]`")
    eval: str = Field(default="test", description="TFDS split expression, for example `train[90%:]` or `test`")
    test: Optional[str] = Field(
        default=None,
        description="TFDS split expression: what the Evaluator reads, once, and training never; null is `eval`",
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
        description="a TFDS image-classification name (`mnist`), `digits` (embedded), `package.module:Builder`, or a "
        "folder: a prepared TFDS data set, IDX files, CIFAR binary batches, or images by class; or a CSV or Parquet "
        "file of paths and labels",
    )
    version: Optional[str] = Field(default=None, description="TFDS version; null is the newest that is there")
    data_dir: Optional[str] = Field(default=None, description="TFDS data_dir; null is TFDS's own default")
    download: bool = Field(default=True, description="may TFDS fetch and prepare what data_dir does not hold")
    splits: Splits = Splits()
    shards: Optional[conint(ge=1, le=1000)] = Field(  # type: ignore[valid-type]
        default=None,
        description="files per split, at most one for each example; null is 8, or one for each worker that reads files",
    )
    image_size: Optional[tuple[conint(ge=1, le=4096), conint(ge=1, le=4096)]] = Field(  # type: ignore[valid-type]
        default=None, description="[height, width] to resize to; required where the images differ in size"
    )

    def shards_for(self, readers: int = 1) -> int:
        """Returns the number of files per split, where each reader takes files of its own."""
        return self.shards or max(_SHARDS, readers)


class TransformSection(Section):
    """Which preprocessing_fn Transform runs."""

    preprocessing_fn: Optional[str] = Field(
        default=None, description="`standardize`, which null is too; or `package.module:function`"
    )
    module_file: Optional[str] = Field(
        default=None, description="a TFX module file that defines `preprocessing_fn`, unchanged"
    )

    @property
    def target(self) -> str:
        """The module file, or `package.module:function` of the preprocessing_fn."""
        return self.module_file or expand("transform.preprocessing_fn", self.preprocessing_fn or "standardize")
