"""The checkpoints that a trial continues from."""

from __future__ import annotations

import json
import os
import shutil

import pytest
import tensorflow as tf
from tensorboard.plugins.hparams import plugin_data_pb2
from tfx.dsl.io import fileio

from tests.components.conftest import until_it_lives
from tests.folders import contents, write_files
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.components.tuner.training import Trials, _remove, _tidy, _write_events, copy_training
from tfx_estimator.components.tuner.trials import BEGUN, COMPLETED, Result, Trial
from tfx_estimator.pipeline.base.errors import StoppedError
from tfx_estimator.pipeline.config.tune import TuneSection
from tfx_estimator.pipeline.user_source import opened


def test_a_trial_does_not_continue_from_an_incomplete_copy(tmp_path):
    source, target = tmp_path / "0001" / "training", tmp_path / "0002" / "training"
    write_files(source, dict.fromkeys(("eval/events", "logs/chief-0.log", "model.ckpt-20.index"), "of one trial"))
    # An unreadable file interrupts the copy.
    (source / "eval" / "z").symlink_to(tmp_path / "nowhere")
    target.parent.mkdir()
    with pytest.raises(fileio.NotFoundError):
        copy_training(str(source), str(target))
    assert target.exists()
    (target / "model.ckpt-10.index").write_text("of half a copy")
    (source / "eval" / "z").unlink()
    copy_training(str(source), str(target))
    assert sorted(contents(target)) == ["eval/events", "model.ckpt-20.index"]
    # The trial has trained since: its checkpoints are not overwritten.
    (target / "model.ckpt-20.index").write_text("its own")
    (source / "checkpoint").write_text("20")
    copy_training(str(source), str(target))
    assert (target / "model.ckpt-20.index").read_text() == "its own"
    assert not (target / "checkpoint").exists()


@pytest.mark.parametrize("parent", [None, 1])
def test_the_removal_of_a_trial_of_other_values_dies_at_any_operation(bucket, tmp_path, parent):
    place = tmp_path / "trials" / "0002"

    def begin() -> None:
        shutil.rmtree(place, ignore_errors=True)
        names = ("hyperparameters/best_hyperparameters.txt", "training/checkpoint", "training/model.ckpt-9.index")
        write_files(place, dict.fromkeys(names, "of the old values"))
        (place / "training.copied").touch()
        (place / "trial.json").write_text("{}")
        (place / BEGUN).write_text(json.dumps(Result(2, {"rate": 0.1}, "", parent=parent).to_dict()))

    operations = 0
    for _ in until_it_lives(bucket, lambda: _remove("store://trials/0002"), begin):
        # The notes outlive the folders they describe: the next run removes the rest.
        assert (place / BEGUN).exists() or not any((place / name).exists() for name in ("training", "training.copied"))
        operations += 1
    assert operations == 7


def test_values_of_any_type_are_shown_with_the_curves(tmp_path):
    values = {"rate": 0.5, "xla": True, "clip_norm": None, "augment": [{"random_crop": {"padding": 1}}, "random_flip"]}
    _write_events(str(tmp_path), Result(1, values, COMPLETED, 0.9))
    (file,) = tmp_path.glob("events*")
    found = {}
    for event in tf.compat.v1.train.summary_iterator(str(file)):
        for value in event.summary.value:
            data = plugin_data_pb2.HParamsPluginData.FromString(value.metadata.plugin_data.content)
            found.update(data.session_start_info.hparams)
    assert {name: getattr(each, each.WhichOneof("kind")) for name, each in found.items()} == {
        "rate": 0.5,
        "xla": True,
        "clip_norm": "null",
        "augment": "[{random_crop: {padding: 1}}, random_flip]",
    }


def test_a_store_folder_may_vanish_with_its_last_file(bucket, tmp_path, monkeypatch):
    remove = bucket.remove

    def prunes(path: str) -> None:
        remove(path)
        folder = tmp_path / path.removeprefix("store://")
        while not any((folder := folder.parent).iterdir()):
            folder.rmdir()

    monkeypatch.setattr(bucket, "remove", prunes)
    monkeypatch.setattr(bucket, "isdir", lambda path: os.path.isdir(tmp_path / path.removeprefix("store://")))
    training = tmp_path / "trials" / "0001"
    kept = ("declaration.json", "eval/events.out.tfevents.1", "logs/chief-0.log")
    write_files(training, dict.fromkeys((*kept, "export/1/saved_model.pb", "model.ckpt-20.index"), "any"))
    _tidy("store://trials/0001")
    assert sorted(contents(training)) == [*kept]
    assert not (training / "export").exists()


def test_the_result_of_a_trial_counts_until_a_file_that_its_code_has_read_changes(tmp_path, monkeypatch):
    (words := tmp_path / "words.txt").write_text("a")
    trials = Trials(str(tmp_path), {}, {}, Settings(), TuneSection.parse_obj({"ranges": {"x": [1]}, "max_trials": 1}))
    place, trial = tmp_path / "trials" / "0001", Trial(1, {"x": 1})
    note = json.dumps([str(words), opened.hash_file(str(words))])
    write_files(place / "training", {"logs/chief-0.attempt-1.read.jsonl": note, "model.ckpt-9.index": ""})
    Result(1, {"x": 1}, COMPLETED, 0.9).save(str(place))
    assert trials.run(trial).score == 0.9
    words.write_text("b")

    def begins(trials: Trials, trial: Trial, place: str) -> None:
        assert not contents(tmp_path / "trials" / "0001" / "training")
        raise StoppedError("it trains", todo="")

    monkeypatch.setattr(Trials, "_train", begins)
    with pytest.raises(StoppedError, match="it trains"):
        trials.run(trial)
