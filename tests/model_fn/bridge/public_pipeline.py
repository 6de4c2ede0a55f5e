"""A pipeline of TFX: examples, 20 steps of a module file's trainer_fn, and a push; all in a folder.

    python public_pipeline.py FOLDER MODULE_FILE ARGUMENTS

The folder has `records`; the arguments are a Trainer's further ones, as JSON.
"""

import json
import sys

from tfx.components import ImportExampleGen
from tfx.orchestration import metadata, pipeline
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.proto import pusher_pb2, trainer_pb2

from tfx_estimator import Pusher, Trainer

if __name__ == "__main__":
    folder, module_file, arguments = sys.argv[1:]
    example_gen = ImportExampleGen(input_base=f"{folder}/records")
    trainer = Trainer(
        module_file=module_file,
        examples=example_gen.outputs["examples"],
        train_args=trainer_pb2.TrainArgs(num_steps=20),
        eval_args=trainer_pb2.EvalArgs(),
        **json.loads(arguments),
    )
    pushed = pusher_pb2.PushDestination.Filesystem(base_directory=f"{folder}/pushed")
    pusher = Pusher(model=trainer.outputs["model"], push_destination=pusher_pb2.PushDestination(filesystem=pushed))
    LocalDagRunner().run(
        pipeline.Pipeline(
            pipeline_name="public",
            pipeline_root=f"{folder}/artifacts",
            components=[example_gen, trainer, pusher],
            metadata_connection_config=metadata.sqlite_metadata_connection_config(f"{folder}/metadata.sqlite"),
        )
    )
