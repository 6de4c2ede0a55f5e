"""Publications of components, in processes that a test may end at any file operation."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from ml_metadata.proto import metadata_store_pb2
from tfx.orchestration import metadata
from tfx.orchestration.portable import data_types, execution_publish_utils
from tfx.types import standard_artifacts

from tests.components.pusher.executions import execute
from tests.faults.file_operations import stop_here
from tfx_estimator.components.trainer import executor as trainer
from tfx_estimator.components.trainer import export
from tfx_estimator.components.trainer.component import Driver
from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.settings import BUILT_IN_TRAINER_FN, Settings
from tfx_estimator.components.trainer.supervisor.outcome import Outcome
from tfx_estimator.pipeline.base.ending.signals import SignalledError, handled
from tfx_estimator.pipeline.base.errors import TfxEstimatorError


def call(name: str, *arguments: object) -> int:
    try:
        with handled():
            print(globals()[name](*arguments) or "")
    except TfxEstimatorError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except SignalledError as end:
        return end.exit_code
    return 0


def save(folder: str, number: float) -> None:
    import tensorflow as tf

    class Model(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.number = tf.Variable(number)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
        def add(self, values):
            return {"sum": values + self.number}

    model = Model()
    tf.saved_model.save(model, folder, signatures=model.add)


def load(*folders: str) -> str:
    """Loads SavedModels; returns the number that each adds, as JSON."""
    import tensorflow as tf

    zero = tf.constant([0.0])
    return json.dumps(
        [float(tf.saved_model.load(f).signatures["serving_default"](values=zero)["sum"][0]) for f in folders]
    )


def push(model: str, base: str, output: str, stop: bool = False) -> str:
    """Executes the Pusher, which first stops its process; returns the version."""
    stop_here(stop)
    return execute(model, base, output).get_string_custom_property("pushed_version")


def train(root: str, model: str, execution: int, stop: bool = False) -> str:
    """Executes the Trainer like TFX's launcher, its driver first, and publishes the execution in ML Metadata.

    A fake training adopts a saved model; the process stops after it.
    """
    database = os.path.join(os.path.dirname(root), "metadata.sqlite")
    handle = metadata.Metadata(metadata.sqlite_metadata_connection_config(database))
    with handle:
        kind = metadata_store_pb2.ExecutionType(name="Trainer")
        registered = execution_publish_utils.register_execution(handle, kind, contexts=[])
    assert registered.id == execution
    resumed = []

    def supervise(job: Job, logs: str) -> Outcome:
        checkpoint = Path(job.training_dir, "model.ckpt-9.index")
        resumed.append(checkpoint.exists())
        checkpoint.write_text("trained")
        Path(logs, "chief-0.attempt-1.log").write_text("log")
        export.adopt(model, os.path.join(job.exports_dir, "Format-Serving"))
        export.adopt(model, os.path.join(job.exports_dir, "Format-TFMA"))
        stop_here(stop)
        return Outcome(first_step=0, last_step=9, seconds=1.0, examples_per_second=None, metrics={})

    trainer.supervise = supervise
    outputs = {"model": standard_artifacts.Model(), "model_run": standard_artifacts.ModelRun()}
    for name, artifact in outputs.items():
        artifact.uri = os.path.join(root, name, str(execution))
    output_dict = {name: [artifact] for name, artifact in outputs.items()}
    Driver(handle).run(data_types.ExecutionInfo(execution_id=execution, output_dict=output_dict))
    examples = standard_artifacts.Examples()
    examples.uri = os.path.join(root, "examples")
    section = {"model": "mnist_cnn", "train_steps": 9}
    settings = Settings(declaration={"name": "any", "data": {"dataset": "digits"}, "trainer": section})
    properties = {"trainer_fn": BUILT_IN_TRAINER_FN, **settings.to_properties()}
    trainer.Executor().Do({"examples": [examples]}, output_dict, properties)
    with handle:
        execution_publish_utils.publish_succeeded_execution(handle, execution, [], output_dict)
    return json.dumps(resumed)
