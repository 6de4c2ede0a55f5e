"""What a module file's trainer_fn is called with, from files alone: without a pipeline, and without TFX."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Optional

from tfx_estimator.model_fn.bridge.steps import STEPS


def fn_args(train: str, evaluation: str, schema: Optional[str], transform: Optional[str], folder: str) -> list[Any]:
    """Returns TFX's FnArgs, as its Trainer fills them in, and the schema. Data may have no end: some steps must do."""
    given = SimpleNamespace(
        train_files=[train], eval_files=[evaluation], train_steps=None, eval_steps=STEPS,
        schema_path=schema, schema_file=schema, transform_graph_path=transform, transform_output=transform,
        data_accessor=SimpleNamespace(tf_dataset_factory=_batches, data_view_decode_fn=None),
        serving_model_dir=folder, eval_model_dir=folder, model_run_dir=folder, working_dir=folder,
        base_model=None, hyperparameters=None, custom_config=None,
    )  # fmt: skip
    if schema is None:
        return [given, None]
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    with open(schema, encoding="utf-8") as file:
        return [given, text_format.Parse(file.read(), schema_pb2.Schema())]


def _batches(files: list[str], options: Any, schema: Any = None) -> Any:
    from tfx_bsl.tfxio.tf_example_record import TFExampleRecord

    return TFExampleRecord(files, schema=schema).TensorFlowDataset(options)
