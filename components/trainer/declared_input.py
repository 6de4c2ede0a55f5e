"""The input of a declaration, for every built-in path of training."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
from tfx.components.trainer.fn_args_utils import FnArgs

from tfx_estimator.components.records import read_records
from tfx_estimator.data.features import LABEL
from tfx_estimator.data.input_fn import ExampleReader
from tfx_estimator.data.table_preprocessing import categories_of
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.task import REGRESSION, Task
from tfx_estimator.pipeline.config.trainer import TrainerSection

# Examples of a regression whose labels are looked at.
_COUNTED = 10_000


@dataclass(frozen=True)
class DeclaredInput:
    """The built-in input of a declaration.

    Args:
        feature_spec: The raw features' spec.
        transformed_spec: The spec of the preprocessing_fn's outputs.
        weight: The feature with the examples' weights; empty for none.
    """

    reader: ExampleReader
    feature_spec: dict[str, Any]
    transformed_spec: dict[str, Any]
    transform_output: tft.TFTransformOutput
    label: str = LABEL
    weight: str = ""

    @property
    def inputs(self) -> dict[str, Any]:
        """The spec of the model's features."""
        return {name: each for name, each in self.transformed_spec.items() if name not in (self.label, self.weight)}

    @property
    def served_spec(self) -> dict[str, Any]:
        """The spec of the raw features that a served model takes."""
        return {name: each for name, each in self.feature_spec.items() if name not in (self.label, self.weight)}

    @property
    def columns(self) -> dict[str, tf.TensorSpec]:
        """The specs of the same features as columns, [batch]; none if an example may have several values of one."""
        single = [
            isinstance(each, tf.io.VarLenFeature) or getattr(each, "shape", None) in ([], [1], (), (1,))
            for each in self.served_spec.values()
        ]
        specs = {name: tf.TensorSpec([None], each.dtype, name) for name, each in self.served_spec.items()}
        return specs if all(single) else {}

    def require(self, *names: str) -> None:
        """Refuses a preprocessing_fn that lacks the label, or one of these features."""
        missing = {self.label, *names} - set(self.transformed_spec)
        if missing:
            found = ", ".join(sorted(self.transformed_spec))
            raise UserCodeError(
                f"the preprocessing_fn returns {found}, but no {' and no '.join(sorted(missing))}",
                expected=f"`{self.label}`, and a feature for each input of the model: `image`, or others by name",
                todo="return it from the preprocessing_fn",
            )


def declared_input(
    fn_args: FnArgs, section: TrainerSection, start_step: Callable[[], int], table: Optional[Task] = None
) -> DeclaredInput:
    """Makes the input of a declaration; `table`: the task of a table, whose examples are transformed already."""
    label, weight = (table.label, table.weight) if table else (LABEL, "")
    transform_output = tft.TFTransformOutput(fn_args.transform_output)
    feature_spec, transformed_spec = transform_output.raw_feature_spec(), transform_output.transformed_feature_spec()
    reader = ExampleReader(
        train_files=_expand(fn_args.train_files),
        eval_files=_expand(fn_args.eval_files),
        feature_spec=transformed_spec if table else feature_spec,
        transform=None if table else transform_output.transform_raw_features,
        train_batch_size=section.global_batch_size,
        eval_batch_size=section.eval_batch_size,
        shuffle_buffer=section.shuffle_buffer,
        seed=section.seed,
        resident_bytes=section.resident_megabytes << 20,
        sharding=section.distribution.sharding,
        augment=section.augment,
        start_step=start_step,
        index_folder=fn_args.model_run_dir,
        label=label,
    )
    return DeclaredInput(reader, feature_spec, transformed_spec, transform_output, label, weight)


def table_params(declared: DeclaredInput, task: Task) -> dict[str, Any]:
    """Returns a table's params: the numbers of categories by feature, of classes, and the label's mean and deviation.

    Transform writes the categories of vocabularies and buckets into its schema.
    """
    sizes = categories_of(declared.transform_output.transformed_metadata.schema)
    classes = task.width or sizes.get(declared.label, 0)
    if not classes:
        raise UserCodeError(
            f"the number of classes of the label {task.label} is unknown",
            expected="a label that the built-in preprocessing numbers, or of tft.compute_and_apply_vocabulary",
            todo="leave out `transform`, or number the label so",
        )
    mean, deviation = _moments(declared) if task.kind == REGRESSION else (0.0, 1.0)
    return {
        "task": task.kind,
        "num_classes": classes,
        "label_names": [] if task.kind == REGRESSION else list(task.names) or list(map(str, range(classes))),
        "weight": task.weight,
        "vocabularies": {name: size for name, size in sizes.items() if name != declared.label},
        "label_mean": mean,
        "label_deviation": deviation,
    }


def from_columns(columns: dict[str, tf.Tensor], spec: dict[str, Any]) -> dict[str, Any]:
    """Returns columns, [batch], as `tf.io.parse_example` returns examples; NaN and the empty word are missing."""
    found: dict[str, Any] = {}
    for name, values in columns.items():
        if not isinstance(spec[name], tf.io.VarLenFeature):
            found[name] = tf.reshape(values, [-1, *spec[name].shape])
            continue
        # NaN differs from itself.
        rows = tf.where(tf.not_equal(values, "") if values.dtype == tf.string else tf.equal(values, values))
        shape = tf.stack([tf.size(values, tf.int64), 1])
        indices = tf.pad(rows, [[0, 0], [0, 1]])
        found[name] = tf.SparseTensor(indices, tf.gather_nd(values, rows), shape)
    return found


def _moments(declared: DeclaredInput) -> tuple[float, float]:
    """Returns the mean and the deviation of the label in some of the training examples."""
    files = sorted(declared.reader.train_files)
    records = itertools.chain.from_iterable(map(read_records, files))
    features = (tf.train.Example.FromString(each).features for each in itertools.islice(records, _COUNTED))
    found = (each.feature[declared.label] for each in features)
    labels = np.array([(each.float_list.value or each.int64_list.value)[0] for each in found])
    return float(labels.mean()), float(labels.std()) or 1.0


def _expand(patterns: list[str]) -> list[str]:
    return sorted(path for pattern in patterns for path in tf.io.gfile.glob(pattern))
