"""The Trainer's parts that need no training."""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tfx_estimator.pipeline import errors

pytestmark = pytest.mark.unit


def test_progress_is_read_line_by_line_as_it_comes(tmp_path):
    from tfx_estimator.components.trainer.protocol.events import Event, ProgressReader, ProgressWriter

    path = tmp_path / "progress.jsonl"
    reader = ProgressReader(str(path))
    assert reader.read() == []
    ProgressWriter(str(path)).write(Event.STEP, step=1, loss=0.5)
    with path.open("a") as file:
        file.write('{"event": "st')
    assert [event["step"] for event in reader.read()] == [1]
    with path.open("a") as file:
        file.write('ep", "step": 2}\n')
    assert [event["step"] for event in reader.read()] == [2]
    assert reader.read() == []


def test_the_step_of_a_killed_process_is_known(tmp_path):
    from tfx_estimator.components.trainer.protocol.events import ProgressReader

    path = str(tmp_path / "progress.jsonl")
    reader = ProgressReader(path)
    assert reader.step() == -1
    code = f"""
import os, signal
from tfx_estimator.components.trainer.protocol.events import ProgressWriter
progress = ProgressWriter({path!r})
for step in range(0, 2**33 + 1, 2**20):
    progress.at(step)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert reader.step() == 2**33


def test_an_error_of_ours_under_several_replicas_stays_one():
    import tensorflow as tf

    from tfx_estimator.components.trainer.task.start import _of_ours

    @tf.function
    def model_fn(raised: Exception) -> None:
        raise raised

    said = errors.UserCodeError("the loss is a vector", expected="a scalar", todo="reduce it")
    with pytest.raises(Exception, match="the loss is a vector") as caught:
        model_fn(said)
    assert type(caught.value).__name__ == "StagingError"
    assert _of_ours(caught.value) is said
    with pytest.raises(ValueError, match="theirs") as theirs:
        model_fn(ValueError("theirs"))
    assert _of_ours(theirs.value) is theirs.value


@pytest.mark.parametrize("batch_size", [8, None])
@pytest.mark.parametrize(("last", "extra"), [(49, 0), (50, 0), (52, 2)])
def test_steps_beyond_the_declared_ones_are_counted(batch_size, last, extra):
    from tfx_estimator.components.trainer.protocol.events import Event
    from tfx_estimator.components.trainer.protocol.task_spec import TaskSpec
    from tfx_estimator.components.trainer.supervisor.report import Report

    report = Report(batch_size, total_steps=50)
    for step in (0, last):
        report.hear(TaskSpec("chief", 0, 1), {"event": Event.STEP, "step": step, "time": float(step)})
    properties = report.outcome().properties()
    assert (properties["last_step"], properties["extra_steps"]) == (last, extra)
    assert properties.get("examples_per_second") == (batch_size and pytest.approx(batch_size))


def test_what_is_not_known_of_a_training_is_not_told():
    from tfx_estimator.components.trainer.protocol.events import Event
    from tfx_estimator.components.trainer.protocol.task_spec import TaskSpec
    from tfx_estimator.components.trainer.supervisor.report import Report

    chief = TaskSpec("chief", 0, 1)
    # A run_fn reports no step.
    run_fn = Report(batch_size=None, total_steps=50)
    run_fn.hear(chief, {"event": Event.RUNNING})
    assert set(run_fn.outcome().properties()) == {"train_seconds", "restarts", "lost_steps"}
    # Nobody said how many steps to train.
    endless = Report(batch_size=8, total_steps=None)
    for step in (0, 10):
        endless.hear(chief, {"event": Event.STEP, "step": step, "time": float(step)})
    assert "extra_steps" not in endless.outcome().properties()
    # One report is no pace.
    short = Report(batch_size=8, total_steps=1)
    short.hear(chief, {"event": Event.STEP, "step": 1, "time": 1.0})
    properties = short.outcome().properties()
    assert properties["last_step"] == 1
    assert "examples_per_second" not in properties


def test_what_a_failure_cost_is_known_also_when_the_restart_failed_too():
    from tfx_estimator.components.trainer.protocol.events import Event
    from tfx_estimator.components.trainer.protocol.task_spec import TaskSpec
    from tfx_estimator.components.trainer.supervisor.outcome import Restart
    from tfx_estimator.components.trainer.supervisor.report import Report

    report, chief = Report(batch_size=8, total_steps=100), TaskSpec("chief", 0, 1)
    report.hear(chief, {"event": Event.STEP, "step": 78, "time": 1.0})
    report.restarted(Restart("worker-0 was killed", "all tasks were started again", 80))
    report.restarted(Restart("chief-0 was killed", "all tasks were started again", -1))
    report.hear(chief, {"event": Event.STEP, "step": 50, "time": 2.0})
    report.hear(chief, {"event": Event.STEP, "step": 100, "time": 3.0})
    # One at the very end costs no step.
    report.restarted(Restart("evaluator-0 was killed", "evaluator-0 was started again", 100))
    outcome = report.outcome()
    assert [each.lost_steps for each in outcome.restarts] == [None, 30, 0]
    assert outcome.restarts[1].seconds is not None
    assert outcome.properties()["lost_steps"] == 30


def test_a_stop_keeps_its_exit_code_between_processes():
    said = errors.StoppedError("training was ended", todo="run it again", exit_code=130)
    found = pickle.loads(pickle.dumps(said))
    assert (type(found), found.exit_code, str(found)) == (errors.StoppedError, 130, str(said))


def test_the_first_word_on_the_step_to_stop_at_counts(tmp_path):
    from tfx_estimator.components.trainer.protocol.stop import ask_to_stop, asked_to_stop

    path = str(tmp_path / "stop")
    assert asked_to_stop(path) is None
    for step in (120, 125):
        ask_to_stop(path, step)
    assert asked_to_stop(path) == 120
    assert [each.name for each in tmp_path.iterdir()] == ["stop"]


def test_a_restart_that_follows_from_another_counts_with_it():
    from tfx_estimator.components.trainer.supervisor.outcome import Outcome, Restart

    restarts = (
        Restart("ps-0 was killed", "ps-0 was started again", 30),
        Restart("chief-0 failed", "chief-0 was started again", 32, follows=True, lost_steps=7, seconds=9.0),
    )
    outcome = Outcome(0, 50, 60.0, 100.0, {}, restarts)
    assert outcome.properties()["restarts"] == 1
    assert outcome.properties()["lost_steps"] == 7
    assert [each["cause"] for each in json.loads(outcome.history())] == ["ps-0 was killed", "chief-0 failed"]


def test_a_job_survives_its_file(tmp_path):
    from tfx_estimator.components.trainer.protocol.job import Job
    from tfx_estimator.components.trainer.settings import Settings

    settings = Settings(stall_timeout=3.0, image_shape=(2, 3, 1), label_names=("a", "b"))
    job = Job("{}", "{}", {"custom_config": '{"own": 1}'}, "/training", settings.to_dict(), "estimator")
    job.save(str(tmp_path / "job.json"))
    read = Job.load(str(tmp_path / "job.json"))
    assert (read.exec_properties, read.path) == (job.exec_properties, "estimator")
    assert Settings.from_dict(read.settings) == settings


def test_a_trainer_without_settings_has_the_defaults():
    from tfx_estimator.components.trainer.settings import Settings

    assert Settings.of({"custom_config": "null"}) == Settings()


def _locate(root: str = "/root", uri: str = "/root/Examples/1", run: int = 1, training_root: str = "", **properties):
    from tfx.types import standard_artifacts

    from tfx_estimator.components.trainer.training_folder import locate

    examples = standard_artifacts.Examples()
    examples.uri = uri
    return locate(
        f"{root}/Trainer/model_run/{run}", {"examples": [examples]}, {"train_args": "{}", **properties}, training_root
    )


def test_the_training_folder_is_that_of_inputs_and_properties():
    from tfx_estimator.components.trainer.settings import Settings

    assert _locate() == _locate(run=2)
    # A retry with a longer deadline goes on.
    one, other = (Settings(stall_timeout=value).to_properties() for value in (1.0, 2.0))
    assert _locate(**one) == _locate(**other) != _locate()
    # So does one with more restarts, but not one with another strategy.
    sections = [{"max_restarts": count, "train": {"timeout_seconds": 9.0 * count}} for count in (3, 9)]
    sections.append({"throttle_secs": 5, "start_delay_secs": 5, "train": {"timeout_seconds": 27.0}})
    sections.append({"max_restarts": 3, "train": {"timeout_seconds": 27.0, "strategy": "mirrored"}})
    one, other, paced, mirrored = (Settings(distribution_section=section).to_properties() for section in sections)
    assert _locate(**one) == _locate(**other) == _locate(**paced) != _locate(**mirrored)
    assert _locate().uri.startswith("/root/Trainer/training/")
    told = _locate(uri="/root/Examples/1", training_root="gs://bucket/training")
    assert told.uri == f"gs://bucket/training/{_locate().key}-0"
    others = [_locate(), _locate(uri="/root/Examples/2"), _locate(custom_config='{"source": "x"}')]
    assert len({each.uri for each in others}) == len({each.key for each in others}) == 3


def _of_steps(root: Path, steps: int, **trainer):
    """The training folder of a declaration, and where its model run would be published."""
    from tfx_estimator.components.trainer.settings import Settings
    from tfx_estimator.pipeline.config import Declaration

    section = {"model": "mnist_cnn", "train_steps": steps, **trainer}
    declared = Declaration.parse_obj({"name": "a", "data": {"dataset": "digits"}, "trainer": section}).dict()
    properties = Settings(declaration=declared).to_properties()
    return _locate(str(root), train_args=f'{{"num_steps": {steps}}}', **properties)


def _prepare(root: Path, run: int, steps: int, takes_over: bool = True, **trainer):
    from tfx_estimator.components.trainer import training_folder

    folder = _of_steps(root, steps, **trainer)
    uri = str(root / "Trainer" / "model_run" / str(run))
    return Path(folder.uri), training_folder.prepare(folder, uri, f"{folder.uri}/exported", takes_over)


def _train(folder: Path, step: int) -> None:
    for name in (f"model.ckpt-{step}.index", f"model.ckpt-{step}.data-00000-of-00001"):
        (folder / name).write_text("")


def test_a_training_of_another_length_has_the_same_key_and_a_folder_of_its_own(tmp_path):
    one, other, seeded = _of_steps(tmp_path, 10), _of_steps(tmp_path, 20), _of_steps(tmp_path, 10, seed=1)
    assert one.key == other.key != seeded.key
    assert one.uri != other.uri
    assert (one.steps, other.steps) == (10, 20)
    # Nor do epochs count that make as many steps.
    in_epochs = _of_steps(tmp_path, 10, train_steps=None, train_epochs=1.5)
    assert in_epochs == one


def test_a_stopped_training_made_longer_goes_on_in_its_folder(tmp_path):
    stopped, earlier = _prepare(tmp_path, 1, 10)
    assert earlier is None
    _train(stopped, 4)
    # Exported, and killed before it was published.
    (stopped / "exported").mkdir()
    # Neither of these is the same training.
    assert _prepare(tmp_path, 2, 20, seed=1)[1] is _prepare(tmp_path, 2, 20, global_batch_size=4)[1] is None
    longer, earlier = _prepare(tmp_path, 3, 20)
    assert (earlier.steps, earlier.step, earlier.finished) == (10, 4, False)
    assert not stopped.exists()
    assert (longer / "model.ckpt-4.index").exists()
    assert not (longer / "exported").exists()
    # A retry is no training of another length.
    (longer / "exported").mkdir()
    assert _prepare(tmp_path, 4, 20)[1] is None
    assert (longer / "exported").exists()
    # The first one goes back, as long as it is not beyond its end.
    assert _prepare(tmp_path, 5, 10)[0] == stopped
    assert (stopped / "model.ckpt-4.index").exists()


def test_a_finished_training_made_longer_is_copied(tmp_path):
    from tfx_estimator.components.trainer import training_folder

    folder, _ = _prepare(tmp_path, 1, 10)
    # As TFX's examples have it.
    (folder / "Format-Serving").mkdir()
    _train(folder / "Format-Serving", 10)
    (folder / "tmp_worker_1").mkdir()
    _train(folder / "tmp_worker_1", 99)
    run = tmp_path / "Trainer" / "model_run" / "1"
    training_folder.publish(str(folder), str(run))
    # Tasks of somebody else's cluster begin at once.
    longer, earlier = _prepare(tmp_path, 2, 30, takes_over=False)
    assert earlier is None
    assert [path.name for path in longer.iterdir()] == ["training.json"]
    longer, earlier = _prepare(tmp_path, 2, 20)
    assert (earlier.step, earlier.finished) == (10, True)
    for place in (run, longer):
        assert (place / "Format-Serving" / "model.ckpt-10.index").exists()


def test_a_checkpoint_beyond_the_end_is_not_used_and_not_lost(tmp_path):
    from tfx_estimator.components.trainer import training_folder

    folder, _ = _prepare(tmp_path, 1, 30)
    _train(folder, 25)
    shorter, earlier = _prepare(tmp_path, 2, 20)
    assert earlier.step == 25
    assert not training_folder.is_taken(earlier, 20)
    assert [path.name for path in shorter.iterdir()] == ["training.json"]
    assert (folder / "model.ckpt-25.index").exists()
    # Of several the one that came furthest, but not too far.
    _train(shorter, 15)
    assert _prepare(tmp_path, 3, 24)[1].step == 15
    assert _prepare(tmp_path, 3, 25)[1].step == 25


@pytest.mark.parametrize(
    ("step", "trainer", "told"),
    [
        (
            4,
            {"optimizer": {"schedule": "constant"}},
            ["of 10 steps, has come to step 4: training goes on from there, to 20"],
        ),
        (4, {}, ["training goes on from there", "until step 4 it was that of 10 steps, cut there, and from there"]),
        (
            4,
            {"model": None, "module_file": "user.py"},
            [
                "training goes on from there",
                "a learning rate that your code makes of the number of steps is cut at step 4",
            ],
        ),
        (
            4,
            {"model": "compiled_models:functional"},
            [
                "training goes on from there",
                "a learning rate that your code makes of the number of steps is cut at step 4",
            ],
        ),
        (24, {}, ["has come to step 24, which is beyond the 20 that are wanted now: training starts at step 0"]),
    ],
)
def test_it_is_said_what_training_goes_on_with(tmp_path, monkeypatch, caplog, step, trainer, told):
    from tfx_estimator.components.trainer.executor import _prepare as prepare
    from tfx_estimator.components.trainer.protocol.job import Job
    from tfx_estimator.components.trainer.settings import Settings
    from tfx_estimator.pipeline.config import Declaration

    monkeypatch.syspath_prepend(str(Path(__file__).with_name("user")))
    caplog.set_level("INFO", "absl.tfx_estimator")
    _train(_prepare(tmp_path, 1, 10, **trainer)[0], step)
    folder = _of_steps(tmp_path, 20, **trainer)
    section = {"model": "mnist_cnn", "train_steps": 20, **trainer}
    declared = Declaration.parse_obj({"name": "a", "data": {"dataset": "digits"}, "trainer": section}).dict()
    settings = Settings(declaration=declared)
    job = Job("", "", {}, folder.uri, settings.to_dict(), "estimator")
    prepare(folder, str(tmp_path / "Trainer" / "model_run" / "2"), job, settings)
    assert len(caplog.messages) == len(told)
    for message, part in zip(caplog.messages, told):
        assert part in message


def test_a_damaged_saved_model_is_refused(tmp_path):
    from tensorflow.core.protobuf import saved_model_pb2

    from tfx_estimator.components.trainer import export

    model = tmp_path / "model"
    with pytest.raises(errors.ExportError, match="without a model"):
        export.check(str(model))
    model.mkdir()
    (model / "saved_model.pb").write_bytes(b"\x00garbage")
    with pytest.raises(errors.ExportError, match="damaged"):
        export.check(str(model))
    proto = saved_model_pb2.SavedModel()
    meta_graph = proto.meta_graphs.add()
    (model / "saved_model.pb").write_bytes(proto.SerializeToString())
    with pytest.raises(errors.ExportError, match="no signature"):
        export.check(str(model))
    meta_graph.signature_def["serving_default"].method_name = "predict"
    (model / "saved_model.pb").write_bytes(proto.SerializeToString())
    (model / "variables").mkdir()
    with pytest.raises(errors.ExportError, match="lacks its variables"):
        export.check(str(model))
    for name in ("variables.index", "variables.data-00000-of-00001"):
        (model / "variables" / name).write_bytes(b"x")
    export.check(str(model))


def test_adopting_a_model_replaces_an_earlier_half_one(tmp_path):
    from tfx_estimator.components.trainer import export

    source, target = tmp_path / "source", tmp_path / "deep" / "target"
    source.mkdir()
    (source / "new").write_text("new")
    target.mkdir(parents=True)
    (target / "old").write_text("old")
    (tmp_path / "deep" / "target.tmp").mkdir()
    export.adopt(str(source), str(target))
    assert [path.name for path in target.iterdir()] == ["new"]
    assert [path.name for path in target.parent.iterdir()] == ["target"]


def test_alternative_signatures_get_the_names_of_their_inputs(tmp_path):
    from tensorflow.core.protobuf import saved_model_pb2

    from tfx_estimator.components.trainer import export

    proto = saved_model_pb2.SavedModel()
    signatures = proto.meta_graphs.add().signature_def
    signatures["serving_default"].method_name = "a"
    signatures["images:serving_default"].method_name = "b"
    (tmp_path / "saved_model.pb").write_bytes(proto.SerializeToString())
    export.rename_signatures(str(tmp_path))
    proto.ParseFromString((tmp_path / "saved_model.pb").read_bytes())
    renamed = proto.meta_graphs[0].signature_def
    assert {name: renamed[name].method_name for name in renamed} == {"serving_default": "a", "images": "b"}


def test_a_whole_model_fn_is_told_from_a_network():
    from tfx_estimator.components.trainer.task.user_code import find_function, is_model_fn
    from tfx_estimator.model_fn.classifier import make_model_fn
    from tfx_estimator.model_fn.networks import mnist_cnn

    assert not is_model_fn(mnist_cnn)
    assert is_model_fn(make_model_fn(mnist_cnn))
    assert find_function("mnist_cnn") is mnist_cnn


@pytest.mark.parametrize(
    ("target", "told"),
    [("no_such_module:f", "cannot be imported"), ("tfx_estimator.model_fn.networks:mnist", "has no function")],
)
def test_a_function_that_is_not_there_is_told(target, told):
    from tfx_estimator.components.trainer.task.user_code import find_function

    with pytest.raises(errors.UserCodeError, match=told):
        find_function(target)


def test_the_component_takes_what_tfx_takes_and_adds_settings():
    from tfx.proto import trainer_pb2
    from tfx.types import Channel, standard_artifacts

    from tfx_estimator.components.trainer import Trainer
    from tfx_estimator.components.trainer.executor import Executor
    from tfx_estimator.components.trainer.settings import Settings

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


def test_a_dotted_function_is_fingerprinted_so_that_its_change_misses_the_cache(tmp_path, monkeypatch):
    from tfx.types import Channel, standard_artifacts

    from tfx_estimator.components.trainer import Trainer

    monkeypatch.syspath_prepend(str(tmp_path))

    def properties(text: str) -> dict:
        (tmp_path / "dotted_run.py").write_text(text)
        return Trainer(examples=Channel(type=standard_artifacts.Examples), run_fn="dotted_run.run_fn").exec_properties

    once = properties("def run_fn(fn_args): pass\n")
    assert properties("def run_fn(fn_args): pass\n") == once
    assert properties("def run_fn(fn_args): return 1\n") != once


def test_a_task_gets_no_cluster_of_somebody_elses(monkeypatch):
    from tfx_estimator.components.trainer.supervisor.process import _inherited

    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["elsewhere:1"]}}')
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    assert "TF_CONFIG" not in _inherited(None)
    assert "TF_NUM_INTRAOP_THREADS" not in _inherited(None)
    assert _inherited(3)["TF_NUM_INTRAOP_THREADS"] == "3"


def test_what_is_declared_of_the_machine_is_in_the_environment_and_nothing_else_is():
    from tfx_estimator.pipeline.config.trainer import TrainerSection

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
