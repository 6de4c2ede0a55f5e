"""The input of a declaration, for every built-in path of training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from tfx.components.trainer.fn_args_utils import FnArgs

from tfx_estimator.data.features import LABEL
from tfx_estimator.data.input_fn import ExampleReader
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.trainer import TrainerSection


@dataclass(frozen=True)
class DeclaredInput:
    """The built-in input of a declaration.

    Args:
        feature_spec: The raw features' spec.
        transformed_spec: The spec of the preprocessing_fn's outputs.
    """

    reader: ExampleReader
    feature_spec: dict[str, Any]
    transformed_spec: dict[str, Any]
    transform_output: tft.TFTransformOutput
    label: str = LABEL

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
    fn_args: FnArgs, section: TrainerSection, start_step: Callable[[], int], label: str = ""
) -> DeclaredInput:
    """Makes the input of a declaration; `label`: of a table, whose examples are transformed already."""
    transform_output = tft.TFTransformOutput(fn_args.transform_output)
    feature_spec, transformed_spec = transform_output.raw_feature_spec(), transform_output.transformed_feature_spec()
    reader = ExampleReader(
        train_files=_expand(fn_args.train_files),
        eval_files=_expand(fn_args.eval_files),
        feature_spec=transformed_spec if label else feature_spec,
        transform=dict if label else transform_output.transform_raw_features,
        train_batch_size=section.global_batch_size,
        eval_batch_size=section.eval_batch_size,
        shuffle_buffer=section.shuffle_buffer,
        seed=section.seed,
        resident_bytes=section.resident_megabytes << 20,
        sharding=section.distribution.sharding,
        augment=section.augment,
        start_step=start_step,
        index_folder=fn_args.model_run_dir,
        label=label or LABEL,
    )
    return DeclaredInput(reader, feature_spec, transformed_spec, transform_output, label or LABEL)


def _expand(patterns: list[str]) -> list[str]:
    return sorted(path for pattern in patterns for path in tf.io.gfile.glob(pattern))
