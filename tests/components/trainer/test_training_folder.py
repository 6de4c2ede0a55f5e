"""The training folder of a retry, and the earlier training that it resumes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tensorflow as tf

from tests.artifacts import artifact
from tests.components.conftest import until_it_lives
from tests.folders import write_files
from tfx_estimator.components.trainer import training_folder
from tfx_estimator.components.trainer.estimator import checkpoints
from tfx_estimator.components.trainer.executor import _prepare as prepare_and_log
from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.components.trainer.training_folder import locate
from tfx_estimator.pipeline.base.errors import TaskStalledError
from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.user_source import opened


def _locate(
    settings=None,
    root: str = "/root",
    uri: str = "/root/Examples/1",
    run: int = 1,
    training_root: str = "",
    **properties,
):
    place, properties = f"{root}/Trainer/model_run/{run}", {"train_args": "{}", **properties}
    return locate(place, {"examples": [artifact("Examples", uri)]}, properties, settings or Settings(), training_root)


def test_the_training_folder_depends_on_inputs_and_properties():
    assert _locate() == _locate(run=2)
    # A retry with a longer deadline resumes.
    assert _locate(Settings(stall_timeout=1.0)) == _locate() != _locate(Settings(source="other"))
    # So does one with more restarts, but not one with another strategy.
    sections = [{"max_restarts": count, "train": {"timeout_seconds": 9.0 * count}} for count in (3, 9)]
    sections.append({"throttle_secs": 5, "start_delay_secs": 5, "train": {"timeout_seconds": 27.0}})
    sections.append({"max_restarts": 3, "train": {"timeout_seconds": 27.0, "strategy": "mirrored"}})
    one, other, paced, mirrored = (Settings(arguments={"distribution": section}) for section in sections)
    assert _locate(one) == _locate(other) == _locate(paced) != _locate(mirrored)
    assert _locate().uri.startswith("/root/Trainer/training/")
    elsewhere = _locate(uri="/root/Examples/1", training_root="gs://bucket/training")
    assert elsewhere.uri == f"gs://bucket/training/{_locate().key}-0"
    others = [_locate(), _locate(uri="/root/Examples/2"), _locate(custom_config='{"source": "x"}')]
    assert len({each.uri for each in others}) == len({each.key for each in others}) == 3


def _declared(steps: int, **trainer) -> Settings:
    section = {"model": "mnist_cnn", "train_steps": steps, **trainer}
    declared = Declaration.parse_obj({"name": "a", "data": {"dataset": "digits"}, "trainer": section})
    return Settings(declaration=declared.dict())


def _of_steps(root: Path, steps: int, **trainer):
    """Returns the training folder of a declaration, and its model run's address."""
    return _locate(_declared(steps, **trainer), str(root), train_args=f'{{"num_steps": {steps}}}')


def _prepare(root: Path, run: int, steps: int, takes_over: bool = True, **trainer):
    folder = _of_steps(root, steps, **trainer)
    uri = str(root / "Trainer" / "model_run" / str(run))
    return Path(folder.uri), training_folder.prepare(folder, uri, f"{folder.uri}/exported", takes_over)


def _train(folder: Path, step: int) -> None:
    write_files(folder, {f"model.ckpt-{step}.{part}": "" for part in ("index", "data-00000-of-00001")})


def test_a_training_of_another_length_has_the_same_key_and_its_own_folder(tmp_path):
    one, other, seeded = _of_steps(tmp_path, 10), _of_steps(tmp_path, 20), _of_steps(tmp_path, 10, seed=1)
    assert one.key == other.key != seeded.key
    assert one.uri != other.uri
    assert (one.steps, other.steps) == (10, 20)
    # Epochs that amount to the same steps make no difference either.
    in_epochs = _of_steps(tmp_path, 10, train_steps=None, train_epochs=1.5)
    assert in_epochs == one


def test_a_stopped_training_made_longer_resumes_in_its_folder(tmp_path):
    stopped, earlier = _prepare(tmp_path, 1, 10)
    assert earlier is None
    _train(stopped, 4)
    # Exported, but killed before publishing.
    (stopped / "exported").mkdir()
    # Neither of these is the same training.
    assert _prepare(tmp_path, 2, 20, seed=1)[1] is _prepare(tmp_path, 2, 20, global_batch_size=4)[1] is None
    longer, earlier = _prepare(tmp_path, 3, 20)
    assert (earlier.steps, earlier.step, earlier.finished) == (10, 4, False)
    assert not stopped.exists()
    assert (longer / "model.ckpt-4.index").exists()
    assert not (longer / "exported").exists()
    # A retry does not change the length.
    (longer / "exported").mkdir()
    assert _prepare(tmp_path, 4, 20)[1] is None
    assert (longer / "exported").exists()
    # The first one resumes there again unless it is beyond its end.
    assert _prepare(tmp_path, 5, 10)[0] == stopped
    assert (stopped / "model.ckpt-4.index").exists()


def test_the_others_of_a_cluster_wait_until_the_chief_has_made_the_folder(tmp_path):
    folder = _of_steps(tmp_path, 20)
    with pytest.raises(TaskStalledError, match="the chief of this cluster has not made the training folder") as raised:
        training_folder.wait(folder, 0.1)
    assert raised.value.retryable
    assert not Path(folder.uri).exists()
    # A folder that is being taken over still names its former training.
    write_files(Path(folder.uri), {"training.json": json.dumps({"key": folder.key, "steps": 10})})
    with pytest.raises(TaskStalledError):
        training_folder.wait(folder, 0.1)
    _prepare(tmp_path, 1, 20)
    training_folder.wait(folder, 0.1)


def test_a_finished_training_made_longer_is_copied(tmp_path):
    folder, _ = _prepare(tmp_path, 1, 10)
    # As in TFX's examples.
    _train(folder / "Format-Serving", 10)
    _train(folder / "tmp_worker_1", 99)
    run = tmp_path / "Trainer" / "model_run" / "1"
    training_folder.publish(_of_steps(tmp_path, 10), str(run))
    # A run_fn starts from scratch.
    longer, earlier = _prepare(tmp_path, 2, 30, takes_over=False)
    assert earlier is None
    assert [path.name for path in longer.iterdir()] == ["training.json"]
    longer, earlier = _prepare(tmp_path, 2, 20)
    assert (earlier.step, earlier.finished) == (10, True)
    for place in (run, longer):
        assert (place / "Format-Serving" / "model.ckpt-10.index").exists()


@pytest.fixture
def stored(bucket, tmp_path, monkeypatch):
    """Fills a bucket with a training of 10 steps and nothing else."""
    # TensorFlow has no file system for this store.
    monkeypatch.setattr(checkpoints, "last_step", lambda uri: len(list((tmp_path / uri[8:]).glob("*.index"))) or None)
    files = {f"model.ckpt-{step}.{part}" for step in range(3) for part in ("index", "data-00000-of-00001")}

    def make(source: Path) -> None:
        shutil.rmtree(tmp_path / "bucket", ignore_errors=True)
        write_files(source, {**dict.fromkeys(files, ""), "training.json": json.dumps({"key": "k", "steps": 10})})
        (tmp_path / "bucket" / "training").mkdir(exist_ok=True)

    make.files = {*files, "training.json"}
    return make


def _of_bucket(steps: int) -> training_folder.TrainingFolder:
    return training_folder.TrainingFolder(f"store://bucket/training/k-{steps}", "k", steps)


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*")}


@pytest.mark.parametrize("finished", [False, True])
def test_a_take_over_in_a_bucket_that_dies_at_any_operation_is_done_by_the_next_run(bucket, tmp_path, stored, finished):
    place = tmp_path / "bucket" / "training"
    source = tmp_path / "bucket" / "Trainer" / "model_run" / "1" if finished else place / "k-10"

    def prepare(steps: int) -> None:
        uri = "store://bucket/Trainer/model_run/2"
        training_folder.prepare(_of_bucket(steps), uri, f"{_of_bucket(steps).uri}/exported", True)

    operations = 0
    for _ in until_it_lives(bucket, lambda: prepare(20), lambda: stored(source)):
        for folder in (source, place / "k-20"):
            assert _names(folder) == stored.files or not (folder / "training.json").exists()
        # The next run is the same, or as short as the first.
        last = 20 if finished or operations % 2 else 10
        prepare(last)
        assert _names(place / f"k-{last}") == stored.files
        operations += 1
    assert operations >= len(stored.files) * (1 if finished else 2)


def test_a_publication_in_a_bucket_that_dies_at_any_operation_is_done_by_the_next_run(bucket, tmp_path, stored):
    folder, (uri, another) = _of_bucket(10), (f"store://bucket/Trainer/model_run/{number}" for number in (1, 2))
    source, run = tmp_path / "bucket" / "training" / "k-10", tmp_path / "bucket" / "Trainer" / "model_run" / "1"

    def prepare(model_run: str) -> set[str]:
        training_folder.prepare(folder, model_run, f"{folder.uri}/exported", False)
        return _names(source)

    operations = 0
    for died in until_it_lives(bucket, lambda: training_folder.publish(folder, uri), lambda: stored(source)):
        # Also by a run whose driver did not query the metadata.
        assert not died or prepare(another) == stored.files
        operations += 1
    assert operations > 2 * (len(stored.files) - 1)
    assert not source.exists()
    # Without a mark it counts as published, except for the same execution.
    assert prepare(another) == {"training.json"}
    shutil.rmtree(source)
    training_folder.published.note(folder.uri, uri)
    assert _names(run) == prepare(uri) == stored.files
    assert not source.with_name("k-10.moved").exists()


def test_a_folder_recreated_by_a_late_task_is_no_remainder_of_a_removal(tmp_path):
    folder, _ = _prepare(tmp_path, 1, 10)
    _train(folder, 10)
    training_folder.publish(_of_steps(tmp_path, 10), str(tmp_path / "Trainer" / "model_run" / "1"))
    write_files(folder / "logs", {"worker-0.log": "the end"})
    assert _prepare(tmp_path, 2, 10)[1] is None
    assert not list(folder.glob("model.ckpt-*"))


def test_an_incomplete_copy_of_a_finished_training_is_not_resumed(tmp_path):
    folder, _ = _prepare(tmp_path, 1, 10)
    _train(folder, 10)
    run = tmp_path / "Trainer" / "model_run" / "1"
    training_folder.publish(_of_steps(tmp_path, 10), str(run))
    # The remains of a killed take-over, whose notes come first.
    half = Path(f"{_of_steps(tmp_path, 20).uri}.tmp")
    left = {"training.json": (run / "training.json").read_text(), "model.ckpt-10.index": ""}
    write_files(half, left)
    assert _prepare(tmp_path, 2, 30, takes_over=False)[1] is None
    assert not half.exists()
    write_files(half, left)
    longer, earlier = _prepare(tmp_path, 3, 40)
    assert earlier.uri == str(run)
    assert (longer / "model.ckpt-10.data-00000-of-00001").exists()


def test_a_checkpoint_beyond_the_end_is_kept_but_not_used(tmp_path):
    folder, _ = _prepare(tmp_path, 1, 30)
    _train(folder, 25)
    shorter, earlier = _prepare(tmp_path, 2, 20)
    assert earlier.step == 25
    assert not training_folder.is_taken(earlier, 20)
    assert [path.name for path in shorter.iterdir()] == ["training.json"]
    assert (folder / "model.ckpt-25.index").exists()
    # Of several, the furthest one that is not beyond the end.
    _train(shorter, 15)
    assert _prepare(tmp_path, 3, 24)[1].step == 15
    assert _prepare(tmp_path, 3, 25)[1].step == 25


def test_no_task_of_a_cluster_starts_without_the_checkpoint_to_resume_from(tmp_path, monkeypatch):
    _train(tmp_path / "before", 10)
    folder, found = _of_steps(tmp_path, 20), []
    begins = {"checkpoint": str(tmp_path / "before" / "model.ckpt-10"), "resume": True}
    settings = Settings(arguments={"warm_start": begins})

    def adopt(prefix: str, training_dir: str) -> None:
        with pytest.raises(TaskStalledError):
            training_folder.wait(folder, 0)
        found.append((prefix, training_dir))

    monkeypatch.setattr(checkpoints, "adopt", adopt)
    job = Job("", "", {}, folder.uri, settings, "estimator")
    prepare_and_log(folder, str(tmp_path / "Trainer" / "model_run" / "1"), job, settings)
    assert found == [(begins["checkpoint"], folder.uri)]
    training_folder.wait(folder, 0)


@pytest.mark.parametrize("whole", [0, 1])
def test_an_incompletely_adopted_checkpoint_does_not_count(tmp_path, monkeypatch, whole):
    before, folder = tmp_path / "before" / "checkpoints", tmp_path / "training"
    before.mkdir(parents=True)
    folder.mkdir()
    _train(before, 10)
    (before.parent / "proof.json").write_text("{}")
    rename, renamed = tf.io.gfile.rename, []

    def killed(source: str, target: str, overwrite: bool) -> None:
        if len(renamed) == whole:
            raise KeyboardInterrupt
        renamed.append(target)
        rename(source, target, overwrite)

    monkeypatch.setattr(tf.io.gfile, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.adopt(str(before / "model.ckpt-10"), str(folder))
    assert checkpoints.last_step(str(folder)) is None
    monkeypatch.undo()
    checkpoints.adopt(str(before / "model.ckpt-10"), str(folder))
    assert checkpoints.last_step(str(folder)) == 10
    names = {"checkpoint", "model.ckpt-10.data-00000-of-00001", "model.ckpt-10.index", "proof.json"}
    assert {path.name for path in folder.iterdir()} == names


@pytest.mark.parametrize(
    ("step", "trainer", "messages"),
    [
        (4, {"optimizer": {"schedule": "constant"}}, ["of 10 steps, is at step 4: training resumes from there, to 20"]),
        (4, {}, ["training resumes from there", "that of 10 steps is cut at step 4, and from there the rate is"]),
        (10, {}, ["training resumes from there", "10 steps had ended at step 10, and from there"]),
        (
            4,
            {"model": None, "module_file": "user.py"},
            ["training resumes from there", "that your code makes of the number of steps is cut at step 4"],
        ),
        (
            4,
            {"model": "compiled_models:functional", "path": "keras"},
            ["training resumes from there", "that your code makes of the number of steps is cut at step 4"],
        ),
        (24, {}, ["is at step 24, which is beyond the declared 20: training starts at step 0"]),
    ],
)
def test_the_log_names_the_training_that_is_resumed(tmp_path, monkeypatch, caplog, step, trainer, messages):
    monkeypatch.syspath_prepend(str(Path(__file__).with_name("user")))
    caplog.set_level("INFO", "absl.tfx_estimator")
    _train(_prepare(tmp_path, 1, 10, **trainer)[0], step)
    folder = _of_steps(tmp_path, 20, **trainer)
    settings = _declared(20, **trainer)
    job = Job("", "", {}, folder.uri, settings, "estimator")
    prepare_and_log(folder, str(tmp_path / "Trainer" / "model_run" / "2"), job, settings)
    assert len(caplog.messages) == len(messages)
    for message, part in zip(caplog.messages, messages):
        assert part in message


def _names_of(root: Path, run: int, steps: int, **options) -> list[str]:
    """Prepares a folder; returns its checkpoints."""
    folder, uri = _of_steps(root, steps), str(root / "Trainer" / "model_run" / str(run))
    training_folder.prepare(folder, uri, f"{folder.uri}/exported", True, **options)
    return sorted(path.name for path in Path(folder.uri).glob("*.index"))


@pytest.mark.parametrize("state", ["stopped", "longer", "made longer", "unpublished"])
def test_a_training_that_has_read_a_file_which_changed_begins_anew(tmp_path, state):
    weights = tmp_path / "weights.h5"
    weights.write_text("of one day")
    folder, _ = _prepare(tmp_path, 1, 10)
    _train(folder, 4)
    note = json.dumps([str(weights), opened.hash_file(str(weights))])
    write_files(folder / "logs", {"chief-0.attempt-1.read.jsonl": f"{note}\n"})
    if state in ("made longer", "unpublished"):
        training_folder.publish(_of_steps(tmp_path, 10), str(tmp_path / "Trainer" / "model_run" / "1"))
    run, steps = (1 if state == "unpublished" else 2), (20 if "longer" in state else 10)
    shutil.copytree(tmp_path / "Trainer", tmp_path / "before" / "Trainer", symlinks=True)
    assert _names_of(tmp_path, run, steps) == ["model.ckpt-4.index"]
    shutil.rmtree(tmp_path / "Trainer")
    shutil.copytree(tmp_path / "before" / "Trainer", tmp_path / "Trainer")
    weights.write_text("of another")
    if state == "stopped":
        # The others of a cluster wait for the chief, which knows it as well.
        with pytest.raises(TaskStalledError):
            training_folder.wait(_of_steps(tmp_path, steps), 0.1)
    assert _names_of(tmp_path, run, steps) == []
    training_folder.wait(_of_steps(tmp_path, steps), 0.1)


@pytest.mark.parametrize("steps", [10, 20])
def test_a_training_that_is_to_begin_anew_resumes_nothing(tmp_path, steps):
    folder, _ = _prepare(tmp_path, 1, 10)
    _train(folder, 4)
    assert _names_of(tmp_path, 2, steps, anew=True) == []
    assert _names_of(tmp_path, 2, steps) == []
