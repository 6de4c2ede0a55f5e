"""Trains models/ on Chicago's taxis in its folder, like the taxi template's local_runner.py."""

from __future__ import annotations

import sys
from pathlib import Path

from absl import logging
from tfx.components import CsvExampleGen, SchemaGen, StatisticsGen, Transform
from tfx.examples import chicago_taxi_pipeline
from tfx.orchestration import metadata, pipeline
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.proto import trainer_pb2

from tfx_estimator import Trainer

HERE = Path.cwd()
DATA = Path(chicago_taxi_pipeline.__file__).parent / "data" / "simple"


def main(steps: str, kind: str, name: str) -> None:
    """Runs the pipeline.

    Args:
        steps: Training steps.
        kind: The Trainer's argument for `name`: `trainer_fn` or `module_file`.
    """
    example_gen = CsvExampleGen(input_base=str(DATA))
    statistics = StatisticsGen(examples=example_gen.outputs["examples"])
    schema = SchemaGen(statistics=statistics.outputs["statistics"], infer_feature_shape=True)
    transform = Transform(
        examples=example_gen.outputs["examples"],
        schema=schema.outputs["schema"],
        preprocessing_fn="models.preprocessing.preprocessing_fn",
        disable_statistics=True,
    )
    trainer = Trainer(
        **{kind: name},
        examples=transform.outputs["transformed_examples"],
        schema=schema.outputs["schema"],
        transform_graph=transform.outputs["transform_graph"],
        train_args=trainer_pb2.TrainArgs(num_steps=int(steps)),
        eval_args=trainer_pb2.EvalArgs(num_steps=100),
    )
    LocalDagRunner().run(
        pipeline.Pipeline(
            pipeline_name="taxi",
            pipeline_root=str(HERE / "artifacts"),
            components=[example_gen, statistics, schema, transform, trainer],
            enable_cache=True,
            metadata_connection_config=metadata.sqlite_metadata_connection_config(str(HERE / "metadata.sqlite")),
            beam_pipeline_args=["--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner"],
        )
    )


if __name__ == "__main__":
    logging.set_verbosity(logging.INFO)
    main(*sys.argv[1:])
