"""TFX's own components for a table, and the input of its examples, `DataAccessor.tf_dataset_factory`."""

from __future__ import annotations

import dataclasses

import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform.tf_metadata import schema_utils
from tfx import components
from tfx.components.util.tfxio_utils import get_tf_dataset_factory_from_artifact
from tfx.orchestration.metadata import sqlite_metadata_connection_config
from tfx.orchestration.pipeline import Pipeline
from tfx.types import standard_artifacts
from tfx_bsl.public import tfxio

from tests.bench import ctr
from tfx_estimator.components.example_gens import CsvExampleGen
from tfx_estimator.pipeline.config.beam import IN_PROCESS
from tfx_estimator.pipeline.config.task import BINARY, Task


def read(path: str, batch_size: int) -> tf.data.Dataset:
    """Reads transformed examples, shuffled and repeated, which is what its options are by default."""
    schema = schema_utils.schema_from_feature_spec(ctr.transformed_spec())
    factory = get_tf_dataset_factory_from_artifact([standard_artifacts.Examples()], [])
    options = tfxio.TensorFlowDatasetOptions(batch_size=batch_size, label_key=ctr.LABEL)
    return factory([path], options, schema)


def create_pipeline(data: str, workdir: str, ours: bool) -> Pipeline:
    """Reads CSV files and transforms them, with TFX's components or, of ExampleGen and preprocessing_fn, ours."""
    example_gen = (CsvExampleGen if ours else components.CsvExampleGen)(input_base=data)
    statistics = components.StatisticsGen(examples=example_gen.outputs["examples"])
    schema = components.SchemaGen(statistics=statistics.outputs["statistics"])
    package = "tfx_estimator.data.table_preprocessing" if ours else __name__
    transform = components.Transform(
        examples=example_gen.outputs["examples"],
        schema=schema.outputs["schema"],
        preprocessing_fn=f"{package}.preprocessing_fn",
        disable_statistics=True,
        custom_config=dataclasses.asdict(Task(BINARY, ctr.LABEL)),
    )
    return Pipeline(
        "table",
        workdir,
        components=[example_gen, statistics, schema, transform],
        metadata_connection_config=sqlite_metadata_connection_config(f"{workdir}/metadata.sqlite"),
        beam_pipeline_args=[f"--runner={IN_PROCESS}"],
    )


def preprocessing_fn(inputs: dict[str, tf.SparseTensor]) -> dict[str, tf.Tensor]:
    """As TFX's taxi example prepares numbers and words."""
    outputs = {}
    for name, values in inputs.items():
        dense = values
        if isinstance(values, tf.SparseTensor):
            sparse = tf.SparseTensor(values.indices, values.values, [values.dense_shape[0], 1])
            dense = tf.sparse.to_dense(sparse, "" if values.dtype == tf.string else 0)
        dense = tf.reshape(dense, [-1])
        if name == ctr.LABEL:
            outputs[name] = dense
        elif dense.dtype == tf.string:
            outputs[name] = tft.compute_and_apply_vocabulary(dense, top_k=10_000, num_oov_buckets=1)
        else:
            outputs[name] = tft.scale_to_z_score(tf.cast(dense, tf.float32))
    return outputs
