"""Runs one TFX pipeline on a table: a Trainer for each module file, and optionally an Evaluator and a Pusher.

Prints the outputs of each Trainer as JSON.
"""

from __future__ import annotations

import json
from pathlib import Path

import tensorflow_model_analysis as tfma
from absl import logging
from sklearn.datasets import load_breast_cancer
from tfx import components as theirs
from tfx.components import CsvExampleGen, Evaluator, Pusher, SchemaGen, StatisticsGen, Transform
from tfx.dsl.components.base import executor_spec
from tfx.orchestration import metadata, pipeline
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.proto import pusher_pb2, trainer_pb2

from tests.forked_tasks import forked
from tfx_estimator.components.trainer import Trainer
from tfx_estimator.pipeline.base.stack import stacks

MODULES = Path(__file__).resolve().parent / "modules"
STEPS = 200
LOWEST_ACCURACY = 0.85
OF_SERVED = tfma.ModelSpec(signature_name="predict", label_key="benign", prediction_key="logistic")
# As usual for each kind: EvalSavedModel, or a signature of the served model.
EVALUATED = {
    "cancer_canned": OF_SERVED,
    "cancer_keras": tfma.ModelSpec(signature_name="serving_default", label_key="benign"),
    "cancer_template": tfma.ModelSpec(signature_name="eval") if stacks.current().has_eval_saved_model else OF_SERVED,
}


def write_csv(path: Path) -> None:
    """Writes scikit-learn's breast-cancer data, with one column of words: the size of the cell's radius."""
    data = load_breast_cancer(as_frame=True).frame
    data = data.rename(columns=lambda name: name.replace(" ", "_")).rename(columns={"target": "benign"})
    radius = data["mean_radius"]
    data["size"] = radius.map(lambda value: "small" if value < 12 else "medium" if value < 15 else "large")
    columns = [
        "mean_concave_points",
        "mean_concavity",
        "worst_texture",
        "worst_perimeter",
        "worst_area",
        "worst_smoothness",
    ]
    data[[*columns, "size", "benign"]].to_csv(path, index=False)


def eval_config(model: str) -> tfma.EvalConfig:
    """Returns an EvalConfig that blesses by accuracy."""
    threshold = tfma.MetricThreshold(value_threshold=tfma.GenericValueThreshold(lower_bound={"value": LOWEST_ACCURACY}))
    if EVALUATED[model].signature_name == "eval":
        # One of the EvalSavedModel's own metrics.
        metrics = tfma.MetricsSpec(thresholds={"accuracy": threshold})
    else:
        metrics = tfma.MetricsSpec(metrics=[tfma.MetricConfig(class_name="BinaryAccuracy", threshold=threshold)])
    return tfma.EvalConfig(model_specs=[EVALUATED[model]], metrics_specs=[metrics], slicing_specs=[tfma.SlicingSpec()])


def run(arguments: list[str]) -> None:
    """Calls `main` with the arguments."""
    # Like the local_runner.py of TFX's templates.
    logging.set_verbosity(logging.INFO)
    # The first task starts like for users; forking the others saves seconds.
    with forked(fresh=1):
        main(*arguments)


def main(folder: str, *models: str) -> None:
    """Runs the pipeline.

    Args:
        folder: For the table, the artifacts, the metadata and the pushed models.
        *models: Module files; `=trained` omits Evaluator and Pusher. `tfx` is cancer_canned trained by TFX's own
            Trainer.
    """
    root = Path(folder)
    (root / "csv").mkdir()
    write_csv(root / "csv" / "cancer.csv")
    example_gen = CsvExampleGen(input_base=str(root / "csv"))
    statistics = StatisticsGen(examples=example_gen.outputs["examples"])
    schema = SchemaGen(statistics=statistics.outputs["statistics"])
    transform = Transform(
        examples=example_gen.outputs["examples"],
        schema=schema.outputs["schema"],
        module_file=str(MODULES / "cancer_features.py"),
        disable_statistics=True,
    )
    nodes = [example_gen, statistics, schema, transform]
    given = {
        "examples": transform.outputs["transformed_examples"],
        "schema": schema.outputs["schema"],
        "transform_graph": transform.outputs["transform_graph"],
        "train_args": trainer_pb2.TrainArgs(num_steps=STEPS),
        "eval_args": trainer_pb2.EvalArgs(),
    }
    for text in models:
        model, _, trained = text.partition("=")
        if model == "tfx":
            from tfx.components.trainer.executor import Executor

            spec = executor_spec.ExecutorClassSpec(Executor)
            module_file = str(MODULES / "cancer_canned.py")
            nodes.append(theirs.Trainer(module_file=module_file, custom_executor_spec=spec, **given).with_id(model))
            continue
        trainer = Trainer(module_file=str(MODULES / f"{model}.py"), **given).with_id(model)
        nodes.append(trainer)
        if trained:
            continue
        evaluator = Evaluator(
            examples=example_gen.outputs["examples"], model=trainer.outputs["model"], eval_config=eval_config(model)
        ).with_id(f"evaluated_{model}")
        destination = pusher_pb2.PushDestination.Filesystem(base_directory=str(root / "pushed" / model))
        pusher = Pusher(
            model=trainer.outputs["model"],
            model_blessing=evaluator.outputs["blessing"],
            push_destination=pusher_pb2.PushDestination(filesystem=destination),
        ).with_id(f"pushed_{model}")
        nodes += [evaluator, pusher]
    LocalDagRunner().run(
        pipeline.Pipeline(
            pipeline_name="cancer",
            pipeline_root=str(root / "artifacts"),
            components=nodes,
            metadata_connection_config=metadata.sqlite_metadata_connection_config(str(root / "metadata.sqlite")),
            beam_pipeline_args=[
                "--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner",
                # Otherwise TFX packs itself for each component, for workers that do not exist.
                "--sdk_container_image=none",
            ],
        )
    )
    names = [text.partition("=")[0] for text in models]
    print(json.dumps({name: sorted(map(str, (root / "artifacts" / name / "model").iterdir()))[-1] for name in names}))
