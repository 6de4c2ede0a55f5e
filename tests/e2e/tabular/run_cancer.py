"""Runs a TFX pipeline over a table, with one Trainer for each distribution; prints their models' folders as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from absl import logging
from sklearn.datasets import load_breast_cancer
from tfx.components import CsvExampleGen, SchemaGen, StatisticsGen, Transform
from tfx.orchestration import metadata, pipeline
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.proto import trainer_pb2

from tfx_estimator.components.trainer import Trainer

STEPS = 200
DISTRIBUTIONS = {
    "alone": None,
    "mirrored": {"train": {"strategy": "mirrored", "devices": {"cpu": 2}}},
    "workers": {"train": {"strategy": "multi_worker_mirrored", "workers": 2}, "evaluator": True, "max_restarts": 1},
}


def write_csv(path: Path) -> None:
    """Writes scikit-learn's breast cancer, with one column of words: the size of the cell's radius."""
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


def main(folder: str, module_file: str, *names: str) -> None:
    """Runs the pipeline.

    Args:
        folder: For the table, the artifacts and the metadata.
        module_file: With preprocessing_fn and trainer_fn.
        *names: Of the distributions.
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
        module_file=module_file,
        disable_statistics=True,
    )
    trainers = [
        Trainer(
            module_file=module_file,
            examples=transform.outputs["transformed_examples"],
            schema=schema.outputs["schema"],
            transform_graph=transform.outputs["transform_graph"],
            train_args=trainer_pb2.TrainArgs(num_steps=STEPS),
            eval_args=trainer_pb2.EvalArgs(),
            distribution=DISTRIBUTIONS[name],
        ).with_id(name)
        for name in names
    ]
    LocalDagRunner().run(
        pipeline.Pipeline(
            pipeline_name="cancer",
            pipeline_root=str(root / "artifacts"),
            components=[example_gen, statistics, schema, transform, *trainers],
            metadata_connection_config=metadata.sqlite_metadata_connection_config(str(root / "metadata.sqlite")),
        )
    )
    print(json.dumps({name: sorted(map(str, (root / "artifacts" / name / "model").iterdir()))[-1] for name in names}))


if __name__ == "__main__":
    # As the local_runner.py of TFX's templates does.
    logging.set_verbosity(logging.INFO)
    main(*sys.argv[1:])
