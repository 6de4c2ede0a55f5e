"""What a user's function is given."""

from __future__ import annotations

import json

import pytest
from tfx.proto import trainer_pb2
from tfx.types import artifact_utils, channel_utils, standard_artifacts

from tfx_estimator.components.trainer import Trainer
from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.task.fn_args import make_fn_args

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("own", [{}, {"layers": [3, 2]}])
def test_custom_config_is_the_users_alone(tmp_path, own):
    given = {"examples": standard_artifacts.Examples(), "schema": standard_artifacts.Schema()}
    made = {"model": standard_artifacts.Model(), "model_run": standard_artifacts.ModelRun()}
    for name, artifact in {**given, **made}.items():
        artifact.uri = str(tmp_path / name)
    given["examples"].split_names = json.dumps(["train", "eval"])
    (tmp_path / "schema").mkdir()
    (tmp_path / "schema" / "schema.pbtxt").write_text("")
    properties = Trainer(
        examples=channel_utils.as_channel([given["examples"]]),
        run_fn="mine.run_fn",
        train_args=trainer_pb2.TrainArgs(num_steps=7),
        eval_args=trainer_pb2.EvalArgs(),
        custom_config=own,
        distribution={"max_restarts": 1},
    ).exec_properties
    inputs, outputs = (
        artifact_utils.jsonify_artifact_dict({name: [artifact] for name, artifact in each.items()})
        for each in (given, made)
    )
    fn_args = make_fn_args(Job(inputs, outputs, properties, str(tmp_path / "training")))
    # The user's alone: a function may count on it.
    assert (fn_args.custom_config or {}) == own
    assert fn_args.train_steps == 7
    # What outlives one execution.
    assert fn_args.model_run_dir == str(tmp_path / "training")
    assert fn_args.serving_model_dir == str(tmp_path / "training" / "Format-Serving")
    assert fn_args.eval_model_dir == str(tmp_path / "training" / "Format-TFMA")
