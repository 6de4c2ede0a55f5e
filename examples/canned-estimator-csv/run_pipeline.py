"""Your own TFX pipeline on a CSV file, with this project's Trainer in place of TFX's.

data/cancer.csv is the Wisconsin breast-cancer data set of scikit-learn, with one column of words added.
"""

from pathlib import Path

import tensorflow_model_analysis as tfma
from absl import logging
from tfx.components import CsvExampleGen, Evaluator, Pusher, SchemaGen, StatisticsGen, Transform
from tfx.orchestration import metadata, pipeline
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.proto import pusher_pb2, trainer_pb2

from tfx_estimator import Trainer

HERE = Path(__file__).resolve().parent
RUNS = HERE / "runs"


def create_pipeline():
    """Returns the pipeline from the CSV file to a model in runs/serving."""
    example_gen = CsvExampleGen(input_base=str(HERE / "data"))
    statistics = StatisticsGen(examples=example_gen.outputs["examples"])
    schema = SchemaGen(statistics=statistics.outputs["statistics"])
    transform = Transform(
        examples=example_gen.outputs["examples"],
        schema=schema.outputs["schema"],
        module_file=str(HERE / "cancer_features.py"),
        disable_statistics=True,
    )
    trainer = Trainer(
        module_file=str(HERE / "cancer_canned.py"),
        examples=transform.outputs["transformed_examples"],
        schema=schema.outputs["schema"],
        transform_graph=transform.outputs["transform_graph"],
        train_args=trainer_pb2.TrainArgs(num_steps=200),
        eval_args=trainer_pb2.EvalArgs(),
        # On two workers, with an evaluator:
        # distribution={"train": {"strategy": "multi_worker_mirrored", "workers": 2}, "evaluator": True},
    )
    threshold = tfma.MetricThreshold(value_threshold=tfma.GenericValueThreshold(lower_bound={"value": 0.85}))
    evaluator = Evaluator(
        examples=example_gen.outputs["examples"],
        model=trainer.outputs["model"],
        eval_config=tfma.EvalConfig(
            model_specs=[tfma.ModelSpec(signature_name="predict", label_key="benign", prediction_key="logistic")],
            metrics_specs=[
                tfma.MetricsSpec(metrics=[tfma.MetricConfig(class_name="BinaryAccuracy", threshold=threshold)])
            ],
            slicing_specs=[tfma.SlicingSpec(), tfma.SlicingSpec(feature_keys=["size"])],
        ),
    )
    destination = pusher_pb2.PushDestination.Filesystem(base_directory=str(RUNS / "serving"))
    pusher = Pusher(
        model=trainer.outputs["model"],
        model_blessing=evaluator.outputs["blessing"],
        push_destination=pusher_pb2.PushDestination(filesystem=destination),
    )
    RUNS.mkdir(exist_ok=True)
    return pipeline.Pipeline(
        pipeline_name="cancer",
        pipeline_root=str(RUNS / "artifacts"),
        components=[example_gen, statistics, schema, transform, trainer, evaluator, pusher],
        metadata_connection_config=metadata.sqlite_metadata_connection_config(str(RUNS / "metadata.sqlite")),
        # Beam's default runner first starts a server in another language.
        beam_pipeline_args=["--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner"],
    )


if __name__ == "__main__":
    logging.set_verbosity(logging.INFO)
    LocalDagRunner().run(create_pipeline())
