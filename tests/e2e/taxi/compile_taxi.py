"""Compiles the taxi template as its kubeflow_v2_runner.py does, by TFX's own runner; in the template's folder."""

from __future__ import annotations

import sys
from pathlib import Path

from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner
from tfx.proto import trainer_pb2

from pipeline import configs, pipeline


def main(data: str, file: str) -> None:
    """Compiles.

    Args:
        data: Folder of the taxi trips.
        file: What to write.
    """
    made = pipeline.create_pipeline(
        pipeline_name="taxi",
        pipeline_root="gs://there/taxi",
        data_path=data,
        preprocessing_fn=configs.PREPROCESSING_FN,
        run_fn=configs.RUN_FN,
        train_args=trainer_pb2.TrainArgs(num_steps=20),
        eval_args=trainer_pb2.EvalArgs(num_steps=2),
        eval_accuracy_threshold=0.5,
        serving_model_dir=str(Path.cwd() / "serving"),
    )
    config = kubeflow_v2_dag_runner.KubeflowV2DagRunnerConfig(default_image="registry.example/taxi")
    kubeflow_v2_dag_runner.KubeflowV2DagRunner(config, str(Path.cwd()), file).run(made)


if __name__ == "__main__":
    main(*sys.argv[1:])
