"""Parts of the Trainer that need no training."""

from __future__ import annotations

import json
import pickle

import pytest
from tfx.proto import trainer_pb2
from tfx.types import Channel, standard_artifacts

from tfx_estimator.components.trainer import Trainer
from tfx_estimator.components.trainer.executor import Executor
from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.protocol import events
from tfx_estimator.components.trainer.protocol.task_spec import TaskSpec
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.components.trainer.supervisor.process import _inherited
from tfx_estimator.components.trainer.task.user_code import find_function, is_model_fn
from tfx_estimator.model_fn.networks import mnist_cnn
from tfx_estimator.model_fn.step.classifier import make_model_fn
from tfx_estimator.pipeline.base import errors
from tfx_estimator.pipeline.config.trainer import TrainerSection


def test_progress_is_read_line_by_line_as_it_arrives(tmp_path):
    path = tmp_path / "progress.jsonl"
    reader = events.ProgressReader(str(path))
    assert reader.read() == []
    events.ProgressWriter(str(path)).write(events.Event.STEP, step=1, loss=0.5)
    with path.open("a") as file:
        file.write('{"event": "st')
    assert [event["step"] for event in reader.read()] == [1]
    with path.open("a") as file:
        file.write('ep", "step": 2}\n')
    assert [event["step"] for event in reader.read()] == [2]
    assert reader.read() == []


def test_an_error_of_this_project_keeps_its_type_under_several_replicas():
    """AutoGraph replaces errors that cannot be constructed from a text alone."""
    import tensorflow as tf

    class TheirsError(Exception):
        def __init__(self, what: str, where: str) -> None:
            super().__init__(what, where)

    @tf.function
    def model_fn(raised: Exception) -> None:
        raise raised

    error = errors.UserCodeError("the loss is a vector", expected="a scalar", todo="reduce it")
    with pytest.raises(errors.UserCodeError) as caught:
        model_fn(error)
    assert caught.value is error
    with pytest.raises(Exception, match="theirs") as theirs:
        model_fn(TheirsError("theirs", "there"))
    assert type(theirs.value).__name__ == "StagingError"


def test_a_stop_keeps_its_exit_code_between_processes():
    error = errors.StoppedError("training was ended", todo="run it again", exit_code=130)
    found = pickle.loads(pickle.dumps(error))
    assert (type(found), found.exit_code, str(found)) == (errors.StoppedError, 130, str(error))


def test_the_first_request_for_the_step_to_stop_at_counts(tmp_path):
    path = str(tmp_path / "stop")
    assert events.stop_step(path) is None
    for step in (120, 125):
        events.request_stop(path, step)
    assert events.stop_step(path) == 120
    assert [each.name for each in tmp_path.iterdir()] == ["stop"]


def test_a_job_is_restored_from_its_file(tmp_path):
    settings = Settings(stall_timeout=3.0, image_shape=(2, 3, 1), label_names=("a", "b"))
    job = Job("{}", "{}", {"custom_config": '{"own": 1}'}, "/training", settings, "estimator")
    job.save(str(tmp_path / "job.json"))
    read = Job.load(str(tmp_path / "job.json"))
    assert (read.exec_properties, read.path) == (job.exec_properties, "estimator")
    assert read.settings == settings


def test_a_model_fn_is_distinguished_from_a_network():
    assert not is_model_fn(mnist_cnn)
    assert is_model_fn(make_model_fn(mnist_cnn))
    assert find_function("mnist_cnn") is mnist_cnn
    for target, part in (("no_such:f", "cannot be imported"), ("tfx_estimator.model_fn.networks:f", "has no function")):
        with pytest.raises(errors.UserCodeError, match=part):
            find_function(target)


def test_the_component_accepts_tfxs_arguments_and_adds_settings():
    trainer = Trainer(
        examples=Channel(type=standard_artifacts.Examples),
        run_fn="package.module.run_fn",
        train_args=trainer_pb2.TrainArgs(num_steps=3),
        settings=Settings(source="abc"),
        custom_config={"own": 1},
    )
    assert json.loads(trainer.exec_properties["custom_config"]) == {"own": 1}
    assert Settings.of(trainer.exec_properties).source == "abc"
    assert trainer.executor_spec.executor_class is Executor
    assert sorted(trainer.outputs) == ["model", "model_run"]
    with pytest.raises(ValueError, match="Exactly one of"):
        Trainer(examples=Channel(type=standard_artifacts.Examples))


def test_a_task_does_not_inherit_an_external_cluster(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["elsewhere:1"]}}')
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    assert "TF_CONFIG" not in _inherited(TaskSpec("chief", 0, 1))
    assert "TF_NUM_INTRAOP_THREADS" not in _inherited(TaskSpec("chief", 0, 1))
    assert _inherited(TaskSpec("chief", 0, 1, threads=3))["TF_NUM_INTRAOP_THREADS"] == "3"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, "localhost,127.0.0.1,::1"),
        ({"no_proxy": "intern.example, 10.0.0.1,"}, "intern.example,10.0.0.1,localhost,127.0.0.1,::1"),
        # In that case gRPC ignores the other variable.
        ({"no_proxy": "intern.example", "no_grpc_proxy": "localhost"}, "localhost,127.0.0.1,::1"),
    ],
)
def test_local_tasks_reach_each_other_without_a_proxy(monkeypatch, before, after):
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in before.items():
        monkeypatch.setenv(name, value)
    assert _inherited(TaskSpec("chief", 0, 1))["no_grpc_proxy"] == after
    # In an external cluster a task connects to itself by its host name.
    for address, names in (("node-2:7000", ",node-2"), ("[fe80::2]:7000", ",fe80::2"), ("localhost:7000", "")):
        cluster = {"chief": ["node-1:7000"], "worker": ["node-3:7000", address]}
        config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 1}})
        assert _inherited(TaskSpec("worker", 1, 1, tf_config=config))["no_grpc_proxy"] == after + names
    # It is none of the cluster's tasks.
    config = json.dumps({"cluster": {"chief": ["node-1:7000"]}, "task": {"type": "evaluator", "index": 0}})
    assert _inherited(TaskSpec("evaluator", 0, 1, tf_config=config))["no_grpc_proxy"] == after


def test_only_declared_runtime_settings_are_in_the_environment():
    assert TrainerSection().environment == {}
    gpu = {"memory_growth": True, "allocator": "cuda_malloc_async", "thread_mode": "gpu_private"}
    section = TrainerSection(threads={"intra_op": 2, "inter_op": 3}, gpu=gpu, onednn=False)
    assert section.environment == {
        "TF_NUM_INTRAOP_THREADS": "2",
        "TF_NUM_INTEROP_THREADS": "3",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "TF_GPU_ALLOCATOR": "cuda_malloc_async",
        "TF_GPU_THREAD_MODE": "gpu_private",
        "TF_ENABLE_ONEDNN_OPTS": "0",
    }
    assert TrainerSection(intra_op_threads=4).environment == {"TF_NUM_INTRAOP_THREADS": "4"}
    assert TrainerSection(onednn=True).environment == {"TF_ENABLE_ONEDNN_OPTS": "1"}
