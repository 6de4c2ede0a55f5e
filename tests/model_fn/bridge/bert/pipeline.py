"""A pipeline of TFX with examples, BERT's training under two replicas, and a push; all in a folder."""

import sys
from pathlib import Path

from tfx.components import ImportExampleGen
from tfx.orchestration import metadata, pipeline
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.proto import pusher_pb2, trainer_pb2

from tfx_estimator import Pusher, Trainer

if __name__ == "__main__":
    folder = sys.argv[1]
    example_gen = ImportExampleGen(input_base=f"{folder}/records")
    trainer = Trainer(
        module_file=str(Path(__file__).with_name("module.py")),
        examples=example_gen.outputs["examples"],
        train_args=trainer_pb2.TrainArgs(num_steps=20),
        eval_args=trainer_pb2.EvalArgs(),
        distribution={"train": {"strategy": "mirrored", "devices": {"cpu": 2}}},
        tf1=True,
    )
    pushed = pusher_pb2.PushDestination.Filesystem(base_directory=f"{folder}/pushed")
    pusher = Pusher(model=trainer.outputs["model"], push_destination=pusher_pb2.PushDestination(filesystem=pushed))
    LocalDagRunner().run(
        pipeline.Pipeline(
            pipeline_name="bert",
            pipeline_root=f"{folder}/artifacts",
            components=[example_gen, trainer, pusher],
            metadata_connection_config=metadata.sqlite_metadata_connection_config(f"{folder}/metadata.sqlite"),
        )
    )
