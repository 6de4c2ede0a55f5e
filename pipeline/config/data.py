"""The sections `data` and `transform`, and the syntax of TFDS's split expressions, without TFDS."""

from __future__ import annotations

import dataclasses
import fnmatch
import itertools
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Optional, Union

from tfx_estimator.pipeline.config.known import expand
from tfx_estimator.pipeline.config.section import Field, Limits, Section, inner, number
from tfx_estimator.pipeline.user_data.embedded_tables import place_of
from tfx_estimator.pipeline.user_data.names import by_role
from tfx_estimator.pipeline.user_data.spans import find_spans, has_spans, join_patterns
from tfx_estimator.pipeline.user_data.table import FORMATS

_SHARDS = 8
# TFX's default.
_BUCKETS = {"train": 2, "eval": 1}
_Side = Annotated[int, Limits(1, le=4096)]
TF1 = "your modules are written for TensorFlow 1: `import tensorflow` gives them tf.compat.v1, with tf.contrib"
FILES = "files, and folders of files, that your code reads unseen: a change of one repeats the "
EXAMPLES = "a TFDS split expression such as train, train[:90%], train[10000:], train[:5%]+train[95%:]"

# The end of a split, for each unit in which positions are compared.
_ENDS = {"%": 100.0, "": math.inf}
_BOUND = r"-?\d+(?:_\d+)*(?:(?:\.\d+)?%|shard)?"
_PART = re.compile(rf"(?P<name>[\w-]+)(?:\[(?:(?P<low>{_BOUND})?:(?P<high>{_BOUND})?|-?\d+shard)\])?")


class Splits(Section):
    """The splits for training, evaluation while training, and the Evaluator, as TFDS split expressions.

    See https://www.tensorflow.org/datasets/splits. Of a table: shares of its rows, or patterns of its files.
    """

    train: Union[str, int] = Field(
        "train", "TFDS split expression, for example `train[:90%]`; of a table, its share of the rows, or a pattern: 2"
    )
    eval: Union[str, int] = Field(
        "test", "TFDS split expression, for example `train[90%:]` or `test`; of a table, a share or pattern: 1"
    )
    test: Optional[Union[str, int]] = Field(None, "TFDS split expression, read by the Evaluator only; null is `eval`")

    def declared(self) -> dict[str, str]:
        """Returns the given expressions by name, in order."""
        return {name: str(expression) for name, expression in self.dict().items() if expression is not None}

    def names(self) -> set[str]:
        """Returns the names of the splits in the expressions."""
        return {name for expression in self.declared().values() for name in split_names(expression)}

    @property
    def evaluated(self) -> str:
        """The split that the Evaluator reads."""
        return list(self.declared())[-1]


@dataclass(frozen=True)
class Table:
    """The files of a table, as TFX's ExampleGen takes them.

    Args:
        folder: The longest folder without a wildcard.
        pattern: The files in it.
        buckets: Split -> its share of the rows, chosen by hash; empty if splits are files of their own.
        patterns: Split -> its files in the folder; empty if the rows are shared out.
        key: Of the files' format, in FORMATS.
        spans: The days to train on, in their order; empty if the files are not of days, or not on this machine.
        before: The day before these, if there is one.
    """

    folder: str
    pattern: str
    buckets: dict[str, int]
    patterns: dict[str, str]
    key: str = "csv"
    spans: tuple[int, ...] = ()
    before: Optional[int] = None

    @classmethod
    def of(cls, place: str, splits: Splits, key: str = "csv") -> Table:
        """Reads a path or pattern of files of a format in FORMATS, and the declared splits."""
        head, *rest = re.split(r"(?=[^/]*[*?\[{])", place, maxsplit=1)
        folder, pattern = (head, "".join(rest)) if rest else os.path.split(place)
        usual = FORMATS[key].PATTERN
        # Spark writes folders that are named as files.
        if not rest and (not fnmatch.fnmatch(pattern.lower(), usual) or os.path.isdir(place)):
            folder, pattern = place, usual
        given = {name: each for name, each in splits.dict().items() if each is not None}
        if splits == Splits():
            given = dict(_BUCKETS)
        buckets = {name: each for name, each in given.items() if isinstance(each, int)}
        patterns = {name: each for name, each in given.items() if isinstance(each, str)}
        if has_spans(pattern) and patterns:
            # The splits of each day.
            patterns = {name: os.path.join(pattern, each) for name, each in patterns.items()}
        elif has_spans(pattern) and not re.search(r"[*?\[.][^/]*$", pattern):
            # A folder.
            pattern = os.path.join(pattern, usual)
        return cls(folder.rstrip("/") or "/", pattern, buckets, patterns, key)

    @property
    def has_spans(self) -> bool:
        """True if the files are of days."""
        return any(map(has_spans, (*self.patterns.values(), self.pattern)))

    def with_spans(self, last: int) -> Table:
        """Returns the table with its last days."""
        read = list(self.patterns.values()) or [self.pattern]
        # A day has files of each split.
        found = sorted(set.intersection(*({*find_spans(self.folder, each)} for each in read)))
        spans = found[-last:]
        before = found[-last - 1] if len(found) > last else None
        return dataclasses.replace(self, spans=tuple(spans), before=before)

    def read(self) -> tuple[str, dict[str, str]]:
        """Returns what `read_table` takes: the pattern of the files, or the folder and the patterns of the splits."""
        if not self.patterns:
            return os.path.join(self.folder, self._of_spans(self.pattern)), {}
        return self.folder, {name: self._of_spans(each) for name, each in self.patterns.items()}

    @property
    def days(self) -> str:
        """The first day's files and the last one's, in a few words; empty if the files are not of days."""
        pattern = next(iter(self.patterns.values()), self.pattern)
        found = find_spans(self.folder, pattern) if self.spans else {}
        return " to ".join(dict.fromkeys(found[span] for span in (*self.spans[:1], *self.spans[-1:])))

    def _of_spans(self, pattern: str) -> str:
        found = find_spans(self.folder, pattern) if self.spans else {}
        return join_patterns(pattern, [found[span] for span in self.spans]) if found else pattern


class Spans(Section):
    """Which days of `data.csv` to train on."""

    last: int = number(1, 1, 1000, "the number of days, up to the newest one")


class DataSection(Section):
    """What to ingest, and into how many files."""

    dataset: str = Field(
        "",
        "a TFDS image-classification name (`mnist`), `digits` (embedded), `package.module:Builder`, or a "
        "folder: a prepared TFDS data set, IDX files, CIFAR binary batches, or images by class; or a CSV or Parquet "
        "file of labels and images, or paths of these",
    )
    version: Optional[str] = Field(None, "TFDS version; null is the newest prepared one, else the newest")
    data_dir: Optional[str] = Field(None, "TFDS data_dir; null is TFDS's default")
    download: bool = Field(True, "let TFDS download and prepare data sets that data_dir lacks")
    splits: Splits = inner()
    shards: Optional[int] = number(
        None, 1, 1000, "files per split, at most one per example; null is 8, or more for sharding: file"
    )
    image_size: Optional[tuple[_Side, _Side]] = Field(None, "[height, width] to resize to, required if sizes differ")
    channels: Optional[int] = Field(
        None,
        "1 reads all images in grey, 3 in colour; null is 3 if any is in colour",
        schema={"enum": [1, 3]},
        check=lambda value: "" if value in (1, 3) else "it is neither 1 nor 3",
    )
    csv: Optional[str] = Field(
        None,
        "in place of `dataset`, a table of features: a CSV file, a folder of them, a pattern such as days/*.csv or, "
        "with a folder for each day, day-{SPAN}/*.csv or {YYYY}-{MM}-{DD}/*.csv; or `cancer` or `diabetes` (embedded)",
    )
    parquet: Optional[str] = Field(None, "in place of `csv`: a Parquet file, a folder of *.parquet, or a pattern")
    tfrecord: Optional[str] = Field(
        None,
        "in place of `csv`: a TFRecord file of tf.Examples, plain, or gzipped and named *.gz; a folder of *tfrecord*; "
        "or a pattern",
    )
    spans: Spans = inner()
    schema: Optional[str] = Field(
        None, "schema of a table, a schema.pbtxt; null infers one, and keeps it for later runs"
    )
    label: Optional[str] = Field(None, "of a table: the column to predict, or the feature that the preprocessing makes")
    weight: Optional[str] = Field(
        None,
        "of a table: the column, or the preprocessed feature, of the examples' weights, in the evaluation, and in the "
        "training of a built-in model or a network; null is 1",
    )
    task: Optional[Literal["binary", "classes", "regression"]] = Field(
        None, "of a table: what the label asks for; null is what the values of its column tell"
    )
    split_by: Optional[str] = Field(
        None, "of a table: a column whose equal values are put into the same split; null splits by whole rows"
    )

    @property
    def table_keys(self) -> list[str]:
        """The keys that name a table, one of them in a checked section of a table."""
        return [key for key in FORMATS if getattr(self, key)]

    @property
    def is_table(self) -> bool:
        """Whether the data are a table of features."""
        return bool(self.table_keys)

    @property
    def table_path(self) -> str:
        """The file, folder or pattern of the table, as declared; empty without one."""
        return next((getattr(self, key) for key in self.table_keys), "")

    def table(self) -> Table:
        """Returns the files and splits of a table; writes the file of an embedded one, unless it is there."""
        (key, *_), place = self.table_keys, self.table_path
        table = Table.of(place_of(place) if key == "csv" else place, self.splits, key)
        return table.with_spans(self.spans.last) if table.has_spans else table

    def shards_for(self, readers: int = 1) -> int:
        """Returns the number of files per split for so many readers, each with its own files."""
        return self.shards or max(_SHARDS, readers)


class TransformSection(Section):
    """Which preprocessing_fn Transform runs."""

    preprocessing_fn: Optional[str] = Field(
        None,
        "`standardize`, of images; `by_schema` or `raw`, of tables; or `package.module:function`; null is the first",
    )
    module_file: Optional[str] = Field(None, "a TFX module file that defines `preprocessing_fn`, unchanged")
    tf1: bool = Field(False, TF1)
    top_k: Optional[int] = number(
        None, 1, 2**31 - 2, "of by_schema: so many words of a column, the most frequent, are numbered; null is 10,000"
    )
    analyzers: Optional[Literal["frozen"]] = Field(
        None,
        "of a table of days: `frozen` takes means, buckets and the numbers of words from the latest blessed model of "
        "an earlier day, and numbers new words after them; null analyses each run's rows anew",
    )
    # Their hashes are in the cache key.
    files: tuple[str, ...] = Field((), f"{FILES}preprocessing", operational=True)

    def of_table(self) -> TransformSection:
        """Returns the section with the default of tables."""
        default = self.preprocessing_fn is None and self.module_file is None
        return self.copy(update={"preprocessing_fn": "by_schema"}) if default else self

    @property
    def target(self) -> str:
        """The module file, or `package.module:function` of the preprocessing_fn."""
        return self.module_file or expand("transform.preprocessing_fn", self.preprocessing_fn or "standardize")


def reject_split(expression: str) -> str:
    """Returns why TFDS would refuse an expression such as `train[:90%]+test`, as far as the text tells; else empty."""
    for text in map(str.strip, expression.split("+")):
        part = _read(text)
        if part is None:
            return f"{text!r} is not a split expression" if text else "a part of the expression is empty"
        if part.is_mixed:
            return f"{text}: one end is in percent, and the other is not"
        if part.unit == "%" and not 0 <= part.low <= part.high <= 100:
            return f"{text} is empty, or goes beyond 100%"
        if part.unit is not None and part.low >= part.high:
            return f"{text} is empty"
    return ""


def split_names(expression: str) -> list[str]:
    """Returns the names of the splits in an expression."""
    return [part.strip().partition("[")[0] for part in expression.split("+")]


def suggest_splits(names: Sequence[str], test: bool = False) -> str:
    """Returns a `splits` section for a data set with these splits; `test`: with one for the Evaluator."""
    keys = ("train", "eval", "test") if test else ("train", "eval")
    train, *others = by_role(names)
    whole = others[1 - len(keys) :]
    parts = {1: ("",), 2: ("[:90%]", "[90%:]"), 3: ("[:80%]", "[80%:90%]", "[90%:]")}[len(keys) - len(whole)]
    values = zip(keys, (*(f"{train}{part}" for part in parts), *whole))
    return "splits: {{{}}}".format(", ".join(f"{key}: '{value}'" for key, value in values))


def find_overlap(one: str, other: str) -> str:
    """Returns the overlap of two split expressions, such as `a part of train[70%:]`, as their text tells; else empty.

    Compares ranges in percent with each other, those in examples from the start with each other, and whole splits with
    everything. Other overlaps are found when the data set is opened.
    """
    parts = ([part for text in each.split("+") if (part := _read(text.strip()))] for each in (one, other))
    return next((shared for first, second in itertools.product(*parts) if (shared := _shared(first, second))), "")


@dataclass(frozen=True)
class _Part:
    """One part of an expression; its unit is None if its bounds are not comparable."""

    text: str
    name: str
    unit: Optional[str]
    low: float
    high: float
    # TFDS silently reads both ends as percent.
    is_mixed: bool = False

    def is_all_of(self, name: str) -> bool:
        whole = self.unit is not None and (self.low, self.high) == (0, _ENDS[self.unit])
        return self.name == "all" or (self.name == name and whole)


def _read(text: str) -> Optional[_Part]:
    found = _PART.fullmatch(text)
    if found is None:
        return None
    low, high = found["low"] or "0", found["high"] or ""
    # A start of 0 fits either unit.
    unit = "%" if "%" in (high or low) else ""
    mixed = high != "" and low.strip("0%_.") != "" and low.endswith("%") != high.endswith("%")
    if "shard" in text or mixed or ("-" in low + high and not unit):
        return _Part(text, found["name"], None, math.nan, math.nan, mixed)
    bounds = float(low.rstrip("%")), float(high.rstrip("%") or _ENDS[unit])
    # Negative percentages count from the end.
    start, stop = (value + _ENDS[unit] if value < 0 else value for value in bounds)
    return _Part(text, found["name"], unit, start, stop)


def _shared(one: _Part, other: _Part) -> str:
    if one.is_all_of(other.name):
        return other.text
    if other.is_all_of(one.name):
        return one.text
    comparable = one.name == other.name and one.unit is not None and one.unit == other.unit
    overlaps = comparable and max(one.low, other.low) < min(one.high, other.high)
    return f"a part of {other.text}" if overlaps else ""
